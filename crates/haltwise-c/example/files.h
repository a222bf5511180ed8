/* What the example needs of a machine. */
#include <stdint.h>

/* Opens a file to read, or to write; negative where it cannot. */
int file_open(const char *path, int write);
uint32_t file_read(int file, void *into, uint32_t bytes);
uint32_t file_write(int file, const void *from, uint32_t bytes);
void file_close(int file);
void say_number(const char *words, int64_t number);
/* A clock that counts instructions, where there is one. */
uint32_t ticks_now(void);
uint32_t ticks_since(uint32_t before);

int decide(const char *rule_path, const char *traces_path, const char *decisions_path);
