#![doc = include_str!("../README.md")]
#![cfg_attr(target_os = "none", no_std)]
// The names are those of C.
#![allow(non_camel_case_types)]

use core::ffi::{CStr, c_char, c_void};
use core::slice;

use ::haltwise_stream::{
    Decision, GroupStanding, Memory, Reason, Rule, State, Step, StepError, TableError,
};

/// Read on.
pub const HALTWISE_CONTINUE: i32 = 0;
/// Stop: the score has reached the threshold.
pub const HALTWISE_THRESHOLD: i32 = 1;
/// Stop: the rule has no more steps.
pub const HALTWISE_LAST_STEP: i32 = 2;
/// The stream was over before the rule stopped it.
pub const HALTWISE_END: i32 = 3;

/// A pointer that is needed is null, or a rule was not loaded.
pub const HALTWISE_ERROR_NULL: i32 = -1;
/// The table does not begin at an address that 8 divides.
pub const HALTWISE_ERROR_UNALIGNED: i32 = -2;
/// These bytes are not the table of a rule.
pub const HALTWISE_ERROR_NOT_A_TABLE: i32 = -3;
/// The table is of a newer version than this library.
pub const HALTWISE_ERROR_NEWER: i32 = -4;
/// The table is cut short or damaged.
pub const HALTWISE_ERROR_DAMAGED: i32 = -5;
/// The numbers of the table are no rule.
pub const HALTWISE_ERROR_NO_RULE: i32 = -6;
/// The step has no score, and the rule needs one.
pub const HALTWISE_ERROR_NO_SCORE: i32 = -7;
/// The step has no class probabilities, and the rule needs them.
pub const HALTWISE_ERROR_NO_PROBS: i32 = -8;
/// The step has no prediction, and the rule needs one.
pub const HALTWISE_ERROR_NO_PREDICTION: i32 = -9;
/// The score is not a number in [0, 1].
pub const HALTWISE_ERROR_SCORE: i32 = -10;
/// The probabilities are not numbers in [0, 1] that add up to 1.
pub const HALTWISE_ERROR_PROBS: i32 = -11;
/// There are not as many probabilities as there were while calibrating.
pub const HALTWISE_ERROR_CLASSES: i32 = -12;
/// The prediction is none of the classes.
pub const HALTWISE_ERROR_PREDICTION: i32 = -13;
/// The rule has a learned score, which needs a haltwise_memory of its size.
pub const HALTWISE_ERROR_MEMORY: i32 = -14;

/// A rule, once loaded. It points to its table, which must stay where it is.
#[derive(Debug)]
#[repr(C)]
pub struct haltwise_rule {
    /// The table.
    pub table: *const u64,
    /// How many words it has.
    pub words: usize,
}

/// The group of a stream was not named.
pub const HALTWISE_GROUP_UNNAMED: i32 = 0;
/// The rule halts the group of the stream.
pub const HALTWISE_GROUP_HALTS: i32 = 1;
/// The rule does not halt the group of the stream, or has never seen it.
pub const HALTWISE_GROUP_READ_TO_END: i32 = 2;

/// How far a stream has come. All zeros: it has not begun, and its group is not named.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct haltwise_stream {
    /// How many steps were seen.
    pub steps: u32,
    /// 0 while it runs, else why it halted.
    pub reason: i32,
    /// One of HALTWISE_GROUP_...: set by haltwise_begin.
    pub group: i32,
}

/// What a learned score remembers of a stream. All zeros but `probs` and `room`:
/// it has not begun.
#[derive(Debug)]
#[repr(C)]
pub struct haltwise_memory {
    /// Room for as many numbers as haltwise_rule_room says.
    pub probs: *mut f32,
    /// How many there are.
    pub room: usize,
    /// Not for you.
    pub smoothed: f64,
    /// Not for you.
    pub highest: f64,
    /// Not for you.
    pub drift: f64,
    /// Not for you.
    pub begun: u32,
    /// Not for you.
    pub prediction: u32,
    /// Not for you.
    pub run: u32,
    /// Not for you.
    pub changes: u32,
}

/// What the classifier says at one step.
#[derive(Debug)]
#[repr(C)]
pub struct haltwise_step {
    /// The class probabilities, or null.
    pub probs: *const f32,
    /// How many there are.
    pub classes: usize,
    /// The score, or not a number where there is none.
    pub score: f32,
    /// The predicted class, or a negative number: then the most probable one.
    pub prediction: i32,
}

/// Checks the table of a rule, and loads it: 0, or an error. The table is not
/// copied.
///
/// # Safety
/// `rule` must point to a haltwise_rule, `table` to `bytes` bytes that stay
/// there, unchanged, for as long as the rule is used; either may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haltwise_rule_load(
    rule: *mut haltwise_rule,
    table: *const c_void,
    bytes: usize,
) -> i32 {
    if rule.is_null() || table.is_null() {
        return HALTWISE_ERROR_NULL;
    }
    // SAFETY: as the caller promises.
    let (rule, table) = unsafe { (&mut *rule, slice::from_raw_parts(table.cast::<u8>(), bytes)) };
    let error = match Rule::load(table) {
        Ok(_) => {
            rule.table = table.as_ptr().cast();
            rule.words = bytes / 8;
            return 0;
        }
        Err(TableError::Unaligned) => HALTWISE_ERROR_UNALIGNED,
        Err(TableError::NotATable) => HALTWISE_ERROR_NOT_A_TABLE,
        Err(TableError::Newer { .. }) => HALTWISE_ERROR_NEWER,
        Err(TableError::Damaged) => HALTWISE_ERROR_DAMAGED,
        Err(_) => HALTWISE_ERROR_NO_RULE,
    };
    (rule.table, rule.words) = (core::ptr::null(), 0);
    error
}

/// How many steps the rule has; 0 if it was not loaded.
///
/// # Safety
/// `rule` must be null or point to a rule that haltwise_rule_load loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haltwise_rule_steps(rule: *const haltwise_rule) -> usize {
    // SAFETY: as the caller promises.
    unsafe { loaded(rule) }.map_or(0, |rule| rule.thresholds().len())
}

/// For how many numbers the memory of a stream needs room; 0 if the rule needs
/// none.
///
/// # Safety
/// `rule` must be null or point to a rule that haltwise_rule_load loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haltwise_rule_room(rule: *const haltwise_rule) -> usize {
    // SAFETY: as the caller promises.
    unsafe { loaded(rule) }.map_or(0, |rule| rule.room())
}

/// Begins a stream of a group, for a rule by group. `halting` are the groups that the rule halts,
/// then a null: the constant beside its table. Answers HALTWISE_GROUP_HALTS or
/// HALTWISE_GROUP_READ_TO_END. A rule that halts in some groups only reads a stream to its end
/// that was not begun here.
///
/// # Safety
/// `stream` must be null or point to a haltwise_stream. `halting` and `group` may be null; else
/// `group` and each of `halting` must be texts that end with a zero, and `halting` must end with
/// a null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haltwise_begin(
    stream: *mut haltwise_stream,
    halting: *const *const c_char,
    group: *const c_char,
) -> i32 {
    // SAFETY: as the caller promises.
    let Some(stream) = (unsafe { stream.as_mut() }) else {
        return HALTWISE_ERROR_NULL;
    };
    if halting.is_null() || group.is_null() {
        return HALTWISE_ERROR_NULL;
    }
    // SAFETY: as the caller promises.
    let text = |text: *const c_char| unsafe { CStr::from_ptr(text) }.to_str().ok();
    let mut place = halting;
    let names = core::iter::from_fn(|| {
        // SAFETY: as the caller promises: no place after the null is read.
        let name = unsafe { *place };
        if name.is_null() {
            return None;
        }
        // SAFETY: the null is still to come.
        place = unsafe { place.add(1) };
        Some(text(name))
    });
    // The groups of a rule are UTF-8, so any other name is none of them.
    let standing = match text(group) {
        Some(group) => GroupStanding::of(Some(group), names.flatten()),
        None => GroupStanding::ReadToEnd,
    };
    *stream = haltwise_stream {
        group: group_code(standing),
        ..haltwise_stream::default()
    };
    stream.group
}

/// Shows the score of the next step: 0 to read on, a positive number to stop, or
/// an error, and then the step was not counted.
///
/// # Safety
/// `rule` must be null or point to a rule that haltwise_rule_load loaded, and
/// `stream` must be null or point to a haltwise_stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haltwise_observe_score(
    rule: *const haltwise_rule,
    stream: *mut haltwise_stream,
    score: f32,
) -> i32 {
    let step = Step {
        score: Some(score),
        ..Step::default()
    };
    // SAFETY: as the caller promises.
    unsafe { decide(rule, stream, |rule, state| rule.observe_plain(state, &step)) }
}

/// Shows the class probabilities of the next step to a rule whose score is not
/// learned; answers as haltwise_observe_score.
///
/// # Safety
/// As for haltwise_observe_score; and `probs` must be null or point to `classes`
/// numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haltwise_observe_probs(
    rule: *const haltwise_rule,
    stream: *mut haltwise_stream,
    probs: *const f32,
    classes: usize,
) -> i32 {
    let step = Step {
        // SAFETY: as the caller promises.
        probs: unsafe { numbers(probs, classes) },
        ..Step::default()
    };
    // SAFETY: as the caller promises.
    unsafe { decide(rule, stream, |rule, state| rule.observe_plain(state, &step)) }
}

/// Shows the next step to a rule of any kind; answers as haltwise_observe_score.
///
/// # Safety
/// As for haltwise_observe_probs; and `memory` must be null or point to a
/// haltwise_memory of this stream, whose `probs` must be null or point to `room`
/// numbers; `step` must be null or point to a haltwise_step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haltwise_observe(
    rule: *const haltwise_rule,
    stream: *mut haltwise_stream,
    memory: *mut haltwise_memory,
    step: *const haltwise_step,
) -> i32 {
    // SAFETY: as the caller promises.
    let Some(step) = (unsafe { step.as_ref() }) else {
        return HALTWISE_ERROR_NULL;
    };
    let step = Step {
        prediction: u32::try_from(step.prediction).ok(),
        score: Some(step.score).filter(|score| !score.is_nan()),
        // SAFETY: as the caller promises.
        probs: unsafe { numbers(step.probs, step.classes) },
    };
    // SAFETY: as the caller promises.
    let Some(kept) = (unsafe { memory.as_mut() }) else {
        // SAFETY: as the caller promises.
        return unsafe { decide(rule, stream, |rule, state| rule.observe_plain(state, &step)) };
    };
    let probs: &mut [f32] = match kept.probs.is_null() {
        true => &mut [],
        // SAFETY: as the caller promises.
        false => unsafe { slice::from_raw_parts_mut(kept.probs, kept.room) },
    };
    let mut memory = Memory {
        begun: kept.begun != 0,
        prediction: kept.prediction,
        run: kept.run,
        changes: kept.changes,
        smoothed: kept.smoothed,
        highest: kept.highest,
        drift: kept.drift,
        probs,
    };
    // SAFETY: as the caller promises.
    let answer = unsafe {
        decide(rule, stream, |rule, state| {
            rule.observe(state, &mut memory, &step)
        })
    };
    kept.begun = u32::from(memory.begun);
    (kept.prediction, kept.run, kept.changes) = (memory.prediction, memory.run, memory.changes);
    (kept.smoothed, kept.highest, kept.drift) = (memory.smoothed, memory.highest, memory.drift);
    answer
}

/// Counts a step that has no usable score; answers as haltwise_observe_score.
///
/// # Safety
/// As for haltwise_observe_score.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haltwise_skip(
    rule: *const haltwise_rule,
    stream: *mut haltwise_stream,
) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { decide(rule, stream, |rule, state| Ok(rule.skip(state))) }
}

/// The stream is over. Answers why it halted: at its end, unless before.
///
/// # Safety
/// `stream` must be null or point to a haltwise_stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haltwise_end(stream: *mut haltwise_stream) -> i32 {
    // SAFETY: as the caller promises.
    let Some(stream) = (unsafe { stream.as_mut() }) else {
        return HALTWISE_ERROR_NULL;
    };
    if stream.reason == HALTWISE_CONTINUE {
        stream.reason = HALTWISE_END;
    }
    stream.reason
}

/// The rule, if it was loaded.
///
/// # Safety
/// `rule` must be null or point to a rule that haltwise_rule_load loaded.
unsafe fn loaded<'a>(rule: *const haltwise_rule) -> Option<Rule<'a>> {
    // SAFETY: as the caller promises.
    let rule = unsafe { rule.as_ref() }.filter(|rule| !rule.table.is_null())?;
    // SAFETY: as it was when it was loaded.
    let words = unsafe { slice::from_raw_parts(rule.table, rule.words) };
    Rule::from_checked_words(words).ok()
}

/// The numbers that a pointer points to.
///
/// # Safety
/// `numbers` must be null or point to this many.
unsafe fn numbers<'a>(numbers: *const f32, count: usize) -> Option<&'a [f32]> {
    // SAFETY: as the caller promises.
    (!numbers.is_null()).then(|| unsafe { slice::from_raw_parts(numbers, count) })
}

/// Lets a rule decide about a stream.
///
/// # Safety
/// As for haltwise_observe_score.
unsafe fn decide(
    rule: *const haltwise_rule,
    stream: *mut haltwise_stream,
    decide: impl FnOnce(Rule<'_>, &mut State) -> Result<Decision, StepError>,
) -> i32 {
    // SAFETY: as the caller promises.
    let (Some(rule), Some(stream)) = (unsafe { (loaded(rule), stream.as_mut()) }) else {
        return HALTWISE_ERROR_NULL;
    };
    let state = State::at(stream.steps, reason(stream.reason));
    let mut state = state.with_standing(standing(stream.group));
    let answer = match decide(rule, &mut state) {
        Ok(Decision::Continue) => HALTWISE_CONTINUE,
        Ok(Decision::Halt(reason)) => code(reason),
        Err(error) => return error_code(error),
    };
    stream.steps = state.steps();
    stream.reason = state.reason().map_or(HALTWISE_CONTINUE, code);
    answer
}

fn code(reason: Reason) -> i32 {
    match reason {
        Reason::Threshold => HALTWISE_THRESHOLD,
        Reason::LastStep => HALTWISE_LAST_STEP,
        Reason::End => HALTWISE_END,
    }
}

fn reason(code: i32) -> Option<Reason> {
    match code {
        HALTWISE_CONTINUE => None,
        HALTWISE_THRESHOLD => Some(Reason::Threshold),
        HALTWISE_LAST_STEP => Some(Reason::LastStep),
        _ => Some(Reason::End),
    }
}

fn group_code(standing: GroupStanding) -> i32 {
    match standing {
        GroupStanding::Unnamed => HALTWISE_GROUP_UNNAMED,
        GroupStanding::Halts => HALTWISE_GROUP_HALTS,
        GroupStanding::ReadToEnd => HALTWISE_GROUP_READ_TO_END,
    }
}

fn standing(code: i32) -> GroupStanding {
    match code {
        HALTWISE_GROUP_UNNAMED => GroupStanding::Unnamed,
        HALTWISE_GROUP_HALTS => GroupStanding::Halts,
        _ => GroupStanding::ReadToEnd,
    }
}

fn error_code(error: StepError) -> i32 {
    match error {
        StepError::NoScore => HALTWISE_ERROR_NO_SCORE,
        StepError::NoProbs => HALTWISE_ERROR_NO_PROBS,
        StepError::NoPrediction => HALTWISE_ERROR_NO_PREDICTION,
        StepError::Prediction { .. } => HALTWISE_ERROR_PREDICTION,
        StepError::NotProbabilities => HALTWISE_ERROR_PROBS,
        StepError::Classes { .. } => HALTWISE_ERROR_CLASSES,
        StepError::Score(_) => HALTWISE_ERROR_SCORE,
        _ => HALTWISE_ERROR_MEMORY,
    }
}

// Nothing panics; a binary without an operating system must say what would
// happen all the same. It is left out where it links.
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
