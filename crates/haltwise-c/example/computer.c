/* The example on a computer. */
#include <stdio.h>

#include "files.h"

static FILE *files[8];

int file_open(const char *path, int write) {
    for (int i = 0; i < 8; i++) {
        if (files[i] != NULL) continue;
        files[i] = fopen(path, write ? "wb" : "rb");
        return files[i] == NULL ? -1 : i;
    }
    return -1;
}

uint32_t file_read(int file, void *into, uint32_t bytes) {
    return (uint32_t)fread(into, 1, bytes, files[file]);
}

uint32_t file_write(int file, const void *from, uint32_t bytes) {
    return (uint32_t)fwrite(from, 1, bytes, files[file]);
}

void file_close(int file) {
    fclose(files[file]);
    files[file] = NULL;
}

void say_number(const char *words, int64_t number) { printf("%s%lld\n", words, (long long)number); }

uint32_t ticks_now(void) { return 0; }

uint32_t ticks_since(uint32_t before) { return before; }

int main(int arguments, char **argument) {
    if (arguments != 4) {
        fputs("usage: decide RULE TRACES DECISIONS\n", stderr);
        return 2;
    }
    int code = decide(argument[1], argument[2], argument[3]);
    for (int i = 0; i < 8; i++) {
        if (files[i] != NULL) file_close(i);
    }
    return code;
}
