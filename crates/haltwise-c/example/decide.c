/* Decides about streams that are read from a file, and writes where each stops.
 *
 * The same program runs on a computer and on a microcontroller: files.h is all
 * that they do not share.
 *
 *   decide RULE TRACES DECISIONS
 *
 * RULE is the table of a rule. TRACES has two numbers of 32 bits (streams, classes),
 * then of each stream how many steps it has, and of each step its score (or not a
 * number), its prediction (or a negative one) and its class probabilities.
 * DECISIONS gets of each stream its steps and its reason, then what a learned score
 * remembers of it: smoothed, highest, drift. */
#include <stdint.h>

#include "files.h"
#include "haltwise.h"

#ifndef LARGEST_TABLE
#define LARGEST_TABLE 1024
#endif
#define MOST_CLASSES 64

static uint64_t table[LARGEST_TABLE];
static struct {
    float score;
    int32_t prediction;
    float probs[MOST_CLASSES];
} said;
static float room[2 * MOST_CLASSES];

/* All bytes that are wanted, or none. */
static int all(int file, void *into, uint32_t bytes) {
    return file_read(file, into, bytes) == bytes;
}

int decide(const char *rule_path, const char *traces_path, const char *decisions_path) {
    int file = file_open(rule_path, 0);
    if (file < 0) return 10;
    uint32_t bytes = file_read(file, table, sizeof table);
    file_close(file);
    haltwise_rule rule;
    int32_t error = haltwise_rule_load(&rule, table, bytes);
    if (error != 0) {
        say_number("the rule cannot be loaded: error ", error);
        return 11;
    }
    if (haltwise_rule_room(&rule) > 2 * MOST_CLASSES) return 12;

    int traces = file_open(traces_path, 0), decisions = file_open(decisions_path, 1);
    uint32_t head[2];
    if (traces < 0 || decisions < 0 || !all(traces, head, sizeof head)) return 13;
    uint32_t streams = head[0], classes = head[1];
    if (classes > MOST_CLASSES) return 14;

    uint64_t ticks = 0, observed = 0;
    for (uint32_t i = 0; i < streams; i++) {
        uint32_t steps;
        if (!all(traces, &steps, sizeof steps)) return 15;
        haltwise_stream stream = {0};
        haltwise_memory memory = {.probs = room, .room = haltwise_rule_room(&rule)};
        for (uint32_t t = 0; t < steps; t++) {
            if (!all(traces, &said, (2 + classes) * 4)) return 16;
            if (stream.reason != HALTWISE_CONTINUE) continue;
            int32_t answer;
            uint32_t before = ticks_now();
#ifdef ONLY_THRESHOLDS
            /* A score that is not a number is none. */
            int scored = said.score == said.score;
            answer = scored ? haltwise_observe_score(&rule, &stream, said.score)
                            : haltwise_observe_probs(&rule, &stream, said.probs, classes);
#else
            haltwise_step step = {classes > 0 ? said.probs : 0, classes, said.score, said.prediction};
            answer = haltwise_observe(&rule, &stream, &memory, &step);
#endif
            ticks += ticks_since(before);
            observed++;
            if (answer < 0) {
                say_number("a step is unusable: error ", answer);
                return 17;
            }
        }
        haltwise_end(&stream);
        struct {
            uint32_t steps;
            int32_t reason;
            double smoothed, highest, drift;
        } decision = {stream.steps, stream.reason, memory.smoothed, memory.highest, memory.drift};
        if (file_write(decisions, &decision, sizeof decision) != sizeof decision) return 18;
    }
    file_close(traces);
    file_close(decisions);
    say_number("observations ", (int64_t)observed);
    say_number("ticks ", (int64_t)ticks);
    return 0;
}
