/* Rules of Haltwise. Made by cbindgen from src/lib.rs: do not edit. */

#ifndef HALTWISE_H
#define HALTWISE_H

#include <stddef.h>
#include <stdint.h>

// Read on.
#define HALTWISE_CONTINUE 0

// Stop: the score has reached the threshold.
#define HALTWISE_THRESHOLD 1

// Stop: the rule has no more steps.
#define HALTWISE_LAST_STEP 2

// The stream was over before the rule stopped it.
#define HALTWISE_END 3

// A pointer that is needed is null, or a rule was not loaded.
#define HALTWISE_ERROR_NULL -1

// The table does not begin at an address that 8 divides.
#define HALTWISE_ERROR_UNALIGNED -2

// These bytes are not the table of a rule.
#define HALTWISE_ERROR_NOT_A_TABLE -3

// The table is of a newer version than this library.
#define HALTWISE_ERROR_NEWER -4

// The table is cut short or damaged.
#define HALTWISE_ERROR_DAMAGED -5

// The numbers of the table are no rule.
#define HALTWISE_ERROR_NO_RULE -6

// The step has no score, and the rule needs one.
#define HALTWISE_ERROR_NO_SCORE -7

// The step has no class probabilities, and the rule needs them.
#define HALTWISE_ERROR_NO_PROBS -8

// The step has no prediction, and the rule needs one.
#define HALTWISE_ERROR_NO_PREDICTION -9

// The score is not a number in [0, 1].
#define HALTWISE_ERROR_SCORE -10

// The probabilities are not numbers in [0, 1] that add up to 1.
#define HALTWISE_ERROR_PROBS -11

// There are not as many probabilities as there were while calibrating.
#define HALTWISE_ERROR_CLASSES -12

// The prediction is none of the classes.
#define HALTWISE_ERROR_PREDICTION -13

// The rule has a learned score, which needs a haltwise_memory of its size.
#define HALTWISE_ERROR_MEMORY -14

// The group of a stream was not named.
#define HALTWISE_GROUP_UNNAMED 0

// The rule halts the group of the stream.
#define HALTWISE_GROUP_HALTS 1

// The rule does not halt the group of the stream, or has never seen it.
#define HALTWISE_GROUP_READ_TO_END 2

// A rule, once loaded. It points to its table, which must stay where it is.
typedef struct haltwise_rule {
  // The table.
  const uint64_t *table;
  // How many words it has.
  size_t words;
} haltwise_rule;

// How far a stream has come. All zeros: it has not begun, and its group is not named.
typedef struct haltwise_stream {
  // How many steps were seen.
  uint32_t steps;
  // 0 while it runs, else why it halted.
  int32_t reason;
  // One of HALTWISE_GROUP_...: set by haltwise_begin.
  int32_t group;
} haltwise_stream;

// What a learned score remembers of a stream. All zeros but `probs` and `room`:
// it has not begun.
typedef struct haltwise_memory {
  // Room for as many numbers as haltwise_rule_room says.
  float *probs;
  // How many there are.
  size_t room;
  // Not for you.
  double smoothed;
  // Not for you.
  double highest;
  // Not for you.
  double drift;
  // Not for you.
  uint32_t begun;
  // Not for you.
  uint32_t prediction;
  // Not for you.
  uint32_t run;
  // Not for you.
  uint32_t changes;
} haltwise_memory;

// What the classifier says at one step.
typedef struct haltwise_step {
  // The class probabilities, or null.
  const float *probs;
  // How many there are.
  size_t classes;
  // The score, or not a number where there is none.
  float score;
  // The predicted class, or a negative number: then the most probable one.
  int32_t prediction;
} haltwise_step;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Checks the table of a rule, and loads it: 0, or an error. The table is not
// copied.
//
// # Safety
// `rule` must point to a haltwise_rule, `table` to `bytes` bytes that stay
// there, unchanged, for as long as the rule is used; either may be null.
int32_t haltwise_rule_load(struct haltwise_rule *rule, const void *table, size_t bytes);

// How many steps the rule has; 0 if it was not loaded.
//
// # Safety
// `rule` must be null or point to a rule that haltwise_rule_load loaded.
size_t haltwise_rule_steps(const struct haltwise_rule *rule);

// For how many numbers the memory of a stream needs room; 0 if the rule needs
// none.
//
// # Safety
// `rule` must be null or point to a rule that haltwise_rule_load loaded.
size_t haltwise_rule_room(const struct haltwise_rule *rule);

// Begins a stream of a group, for a rule by group. `halting` are the groups that the rule halts,
// then a null: the constant beside its table. Answers HALTWISE_GROUP_HALTS or
// HALTWISE_GROUP_READ_TO_END. A rule that halts in some groups only reads a stream to its end
// that was not begun here.
//
// # Safety
// `stream` must be null or point to a haltwise_stream. `halting` and `group` may be null; else
// `group` and each of `halting` must be texts that end with a zero, and `halting` must end with
// a null.
int32_t haltwise_begin(struct haltwise_stream *stream,
                       const char *const *halting,
                       const char *group);

// Shows the score of the next step: 0 to read on, a positive number to stop, or
// an error, and then the step was not counted.
//
// # Safety
// `rule` must be null or point to a rule that haltwise_rule_load loaded, and
// `stream` must be null or point to a haltwise_stream.
int32_t haltwise_observe_score(const struct haltwise_rule *rule,
                               struct haltwise_stream *stream,
                               float score);

// Shows the class probabilities of the next step to a rule whose score is not
// learned; answers as haltwise_observe_score.
//
// # Safety
// As for haltwise_observe_score; and `probs` must be null or point to `classes`
// numbers.
int32_t haltwise_observe_probs(const struct haltwise_rule *rule,
                               struct haltwise_stream *stream,
                               const float *probs,
                               size_t classes);

// Shows the next step to a rule of any kind; answers as haltwise_observe_score.
//
// # Safety
// As for haltwise_observe_probs; and `memory` must be null or point to a
// haltwise_memory of this stream, whose `probs` must be null or point to `room`
// numbers; `step` must be null or point to a haltwise_step.
int32_t haltwise_observe(const struct haltwise_rule *rule,
                         struct haltwise_stream *stream,
                         struct haltwise_memory *memory,
                         const struct haltwise_step *step);

// Counts a step that has no usable score; answers as haltwise_observe_score.
//
// # Safety
// As for haltwise_observe_score.
int32_t haltwise_skip(const struct haltwise_rule *rule, struct haltwise_stream *stream);

// The stream is over. Answers why it halted: at its end, unless before.
//
// # Safety
// `stream` must be null or point to a haltwise_stream.
int32_t haltwise_end(struct haltwise_stream *stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HALTWISE_H */
