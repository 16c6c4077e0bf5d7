// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
use super::*;
use klogger_log::code::Word;
use proptest::prelude::*;

const fn at(function: u64) -> Place {
    Place::File(0, function)
}

fn ret(at_byte: u64, function: u64) -> Word {
    Word { at: at_byte, is: WordIs::Return(at(function)) }
}

fn saved(at_byte: u64, frame: u64) -> Word {
    Word { at: at_byte, is: WordIs::Frame(frame) }
}

const fn stack(bytes: u64, frame: Saved) -> Rule {
    Rule::Caller(Caller { end: End::Stack(bytes), frame })
}

const FRAMED: Rule = Rule::Caller(Caller { end: End::Frame(16), frame: Saved::Below(16) });

/// The functions and gaps of a stack, of functions with these rules. What is settled stays so.
fn settled(
    kernel: &[u64],
    frame: Option<u64>,
    words: &[Word],
    rules: &[(u64, Rule)],
) -> (Vec<u64>, Option<Vec<usize>>) {
    let raw = Raw { kernel: Vec::new(), frame, words: words.to_vec() };
    let frames = kernel.iter().map(|function| at(*function)).collect();
    let mut code = Code {
        stacks: vec![UserStack { frames, raw: Some(raw), ..UserStack::default() }],
        ..Code::default()
    };
    let rules: Rules = rules.iter().map(|(function, rule)| (at(*function), *rule)).collect();
    settle(&mut code, &rules);
    let once = code.clone();
    settle(&mut code, &rules);
    assert_eq!(code, once);
    let stack = code.stacks.remove(0);
    (stack.frames.iter().map(number).collect(), stack.gaps)
}

fn number(place: &Place) -> u64 {
    match place {
        Place::File(_, function) => *function,
        Place::Address(address) => u64::MAX - address,
    }
}

#[test]
fn callers_without_frames_are_those_at_their_words() {
    let rules = [
        (1, stack(8, Saved::Kept)),
        (2, stack(32, Saved::Kept)),
        (3, stack(16, Saved::Below(16))),
        (4, Rule::Outermost),
    ];
    // Between them is what earlier calls have left.
    let words = [ret(0, 2), ret(8, 4), ret(24, 1), ret(32, 3), ret(40, 2), ret(48, 4)];
    // The frame pointer has another use, so that the kernel has followed nothing that is a frame.
    for (kernel, frame) in [(&[1][..], None), (&[1, 9, 8], None), (&[1, 9], Some(8))] {
        assert_eq!(settled(kernel, frame, &words, &rules), (vec![1, 2, 3, 4], Some(vec![])));
    }
    // Without its word a caller is not taken from another one.
    let without: Vec<Word> = words.iter().filter(|word| word.at != 32).copied().collect();
    assert_eq!(settled(&[1], None, &without, &rules), (vec![1, 2], Some(vec![1])));
    assert_eq!(settled(&[1], None, &[], &rules), (vec![1], Some(vec![0])));
}

#[test]
fn where_frames_are_what_the_kernel_has_found_follows() {
    let rules =
        [(1, stack(8, Saved::Kept)), (2, FRAMED), (3, FRAMED), (4, FRAMED), (5, Rule::Outermost)];
    // The frame of 2 is 16 bytes above the stack pointer; that of 3 is too far away.
    let words = [ret(0, 2), saved(16, 4000), ret(24, 3)];
    let found = settled(&[1, 3, 4, 5], Some(16), &words, &rules);
    assert_eq!(found, (vec![1, 2, 3, 4, 5], Some(vec![])));
    // Of the caller of 1 nothing is known: it is missing, and the kernel's frames are further out.
    let found = settled(&[1, 3, 4, 5], Some(16), &words[1..], &rules);
    assert_eq!(found, (vec![1, 3, 4, 5], Some(vec![0])));
    // At the entry of 1 the kernel takes its return address as well.
    let found = settled(&[1, 2, 3, 4, 5], Some(16), &words, &rules);
    assert_eq!(found, (vec![1, 2, 3, 4, 5], Some(vec![])));
}

#[test]
fn a_log_of_an_older_version_keeps_its_frames() {
    let rules = [(1, FRAMED), (2, FRAMED), (3, Rule::Outermost), (6, stack(8, Saved::Kept))];
    assert_eq!(settled(&[1, 2, 3], None, &[], &rules), (vec![1, 2, 3], Some(vec![])));
    // One word, which is the caller, or not.
    let found = settled(&[6, 2, 3], None, &[ret(0, 1)], &rules);
    assert_eq!(found, (vec![6, 1, 2, 3], Some(vec![])));
    let found = settled(&[6, 2, 3], None, &[ret(8, 1)], &rules);
    assert_eq!(found, (vec![6, 2, 3], Some(vec![0])));
}

#[test]
fn files_that_are_gone_later_take_nothing_away() {
    let words = [ret(0, 2), ret(8, 3), ret(16, 4)];
    let raw = Raw { kernel: Vec::new(), frame: None, words: words.to_vec() };
    let stack_of = UserStack { frames: vec![at(1)], raw: Some(raw), ..UserStack::default() };
    let mut code = Code { stacks: vec![stack_of], ..Code::default() };
    let leaf = stack(8, Saved::Kept);
    let mut look = |known: &[(u64, Rule)]| {
        let rules: Rules = known.iter().map(|(function, rule)| (at(*function), *rule)).collect();
        settle(&mut code, &rules);
        let found = &code.stacks[0];
        let frames: Vec<u64> = found.frames.iter().map(number).collect();
        (frames, found.gaps.clone())
    };
    // The file of 3 is missing at first; then that of 2; then none.
    let first = look(&[(1, leaf), (2, leaf)]);
    assert_eq!(first, (vec![1, 2, 3], Some(vec![2])));
    assert_eq!(look(&[(1, leaf), (3, leaf), (4, Rule::Outermost)]), first);
    let all = look(&[(1, leaf), (2, leaf), (3, leaf), (4, Rule::Outermost)]);
    assert_eq!(all, (vec![1, 2, 3, 4], Some(vec![])));
}

#[test]
fn a_frame_pointer_that_was_saved_leads_on() {
    let rules = [
        (1, stack(8, Saved::Kept)),
        (2, stack(24, Saved::Below(16))),
        (3, FRAMED),
        (4, Rule::Outermost),
    ];
    // 2 uses the register for something else, and has saved the frame pointer of 3.
    let words = [ret(0, 2), saved(16, 48), ret(24, 3), ret(56, 4)];
    assert_eq!(settled(&[1], None, &words, &rules), (vec![1, 2, 3, 4], Some(vec![])));
    let lost = [rules[0], (2, stack(24, Saved::Lost)), rules[2], rules[3]];
    assert_eq!(settled(&[1], None, &words, &lost), (vec![1, 2, 3], Some(vec![2])));
}

#[test]
fn a_stack_is_whole_where_its_thread_begins() {
    // The caller's word is too far away to have been recorded.
    let caller = Caller { end: End::Stack(5000), frame: Saved::Kept };
    let whole = |first: Option<Rule>, last: Rule| {
        let raw = Raw { kernel: Vec::new(), frame: None, words: vec![ret(0, 2)] };
        let frames = if first.is_some() { vec![at(1)] } else { vec![at(1), at(2)] };
        let stack = UserStack { frames, raw: Some(raw), ..UserStack::default() };
        let mut code = Code { stacks: vec![stack], ..Code::default() };
        let first = first.map(|rule| (at(1), rule));
        settle(&mut code, &first.into_iter().chain([(at(2), last)]).collect());
        assert_eq!(code.stacks[0].frames, [at(1), at(2)]);
        code.stacks[0].is_whole
    };
    // Also if the file of the innermost function is not there.
    for first in [Some(stack(8, Saved::Kept)), None] {
        for last in [Rule::Begins(caller), Rule::Outermost, Rule::Restorer] {
            assert!(whole(first, last), "{first:?} {last:?}");
        }
        for last in [Rule::Caller(caller), Rule::Absent, Rule::Unknown] {
            assert!(!whole(first, last), "{first:?} {last:?}");
        }
    }
}

#[test]
fn what_no_tables_describe_is_a_gap() {
    let rules = [(1, stack(8, Saved::Kept)), (2, Rule::Absent), (3, FRAMED)];
    let words = [ret(0, 2), ret(8, 3)];
    assert_eq!(settled(&[1], None, &words, &rules), (vec![1, 2], Some(vec![1])));
    // What the kernel took from a word that is no return address is left out.
    assert_eq!(settled(&[1, 7], Some(0), &words[..1], &rules), (vec![1, 2], Some(vec![1])));
    let rules = [(1, Rule::Absent)];
    // The file of 3 was not looked at.
    assert_eq!(settled(&[1, 3], Some(0), &words, &rules), (vec![1, 3], Some(vec![0])));
}

#[test]
fn files_that_are_found_later_lead_on() {
    let raw = Raw { frame: None, words: vec![ret(0, 2), ret(16, 3)], kernel: Vec::new() };
    let mut code = Code {
        stacks: vec![UserStack { frames: vec![at(1)], raw: Some(raw), ..UserStack::default() }],
        ..Code::default()
    };
    let before = code.clone();
    settle(&mut code, &Rules::new());
    assert_eq!(code, before);
    let first: Rules = [(at(1), stack(8, Saved::Kept))].into();
    settle(&mut code, &first);
    assert_eq!(code.stacks[0].frames, [at(1), at(2)]);
    assert_eq!(code.stacks[0].gaps, Some(vec![1]));
    let read = Code::new(code.lines().as_bytes());
    assert_eq!(read, code);
    let mut all = first;
    all.extend([(at(2), stack(16, Saved::Kept)), (at(3), Rule::Outermost)]);
    settle(&mut code, &all);
    assert_eq!(code.stacks[0].frames, [at(1), at(2), at(3)]);
    assert_eq!((&code.stacks[0].gaps, &code.stacks[0].raw), (&Some(vec![]), &None));
}

#[test]
fn names_of_words_that_are_no_frames_are_left_out() {
    let raw = Raw { frame: None, words: vec![ret(0, 2), ret(8, 3)], kernel: Vec::new() };
    let stack_ = UserStack { frames: vec![at(1)], raw: Some(raw), ..UserStack::default() };
    let names = [1, 2, 3].map(|n| ((0, n), Vec::new())).into();
    let mut code = Code { stacks: vec![stack_], names, ..Code::default() };
    settle(&mut code, &[(at(1), stack(8, Saved::Kept)), (at(2), Rule::Outermost)].into());
    assert_eq!(code.names.keys().map(|key| key.1).collect::<Vec<_>>(), [1, 2]);
}

/// What a function of a made stack is like, and how many words it has.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Framed,
    Plain,
    /// It saves the frame pointer, and uses the register for this.
    Uses(Option<usize>),
}

#[derive(Clone, Copy, Debug)]
enum Left {
    Number,
    Return(u64),
    Pointer(usize),
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Framed),
        Just(Kind::Plain),
        proptest::option::of(0..200usize).prop_map(Kind::Uses),
    ]
}

fn left() -> impl Strategy<Value = Left> {
    prop_oneof![
        Just(Left::Number),
        (1..12u64).prop_map(Left::Return),
        (0..200usize).prop_map(Left::Pointer),
    ]
}

/// A stack of words, from its outer end on, and what is known of it.
#[derive(Default)]
struct Made {
    words: Vec<Left>,
    /// The frame pointer, as the index of the word.
    frame: Option<usize>,
    rules: Vec<(u64, Rule)>,
}

impl Made {
    /// Function 0 is the outermost one.
    fn new(functions: &[(Kind, Vec<Left>)]) -> Made {
        let mut made = Made { rules: vec![(0, Rule::Outermost)], ..Made::default() };
        for (n, (kind, locals)) in functions.iter().enumerate() {
            made.words.push(Left::Return(n as u64));
            let own = made.words.len();
            let pushed = made.frame.map_or(Left::Number, Left::Pointer);
            if !matches!(kind, Kind::Plain) {
                made.words.push(pushed);
            }
            match kind {
                Kind::Framed => made.frame = Some(own),
                Kind::Uses(word) => made.frame = *word,
                Kind::Plain => {}
            }
            made.words.extend(locals);
            let bytes = 8 * (made.words.len() - own + 1) as u64;
            made.rules.push((
                n as u64 + 1,
                match kind {
                    Kind::Framed => FRAMED,
                    Kind::Plain => stack(bytes, Saved::Kept),
                    Kind::Uses(_) => stack(bytes, Saved::Below(16)),
                },
            ));
        }
        made
    }

    /// In bytes above the stack pointer.
    fn position(&self, word: usize) -> Option<u64> {
        self.words.len().checked_sub(word + 1).map(|n| 8 * n as u64)
    }

    fn kernel(&self, innermost: u64) -> Vec<u64> {
        let (mut frames, mut frame) = (vec![innermost], self.frame);
        while let Some(word) = frame.filter(|word| (1..self.words.len()).contains(word))
            && frames.len() < 20
        {
            frames.push(match self.words[word - 1] {
                Left::Return(function) => function,
                Left::Number | Left::Pointer(_) => 999,
            });
            frame = match self.words[word] {
                Left::Pointer(next) => Some(next),
                Left::Number | Left::Return(_) => None,
            };
        }
        frames
    }

    fn kept(&self) -> Vec<Word> {
        let is_return = |word: usize| matches!(self.words.get(word), Some(Left::Return(_)));
        let word = |(n, word): (usize, &Left)| match *word {
            Left::Return(function) => Some(ret(self.position(n)?, function)),
            Left::Pointer(to) if to < n && to > 0 && is_return(to - 1) => {
                Some(saved(self.position(n)?, self.position(to)?))
            }
            Left::Number | Left::Pointer(_) => None,
        };
        self.words.iter().enumerate().rev().filter_map(word).collect()
    }
}

proptest! {
    /// Whatever earlier calls have left in a stack: up to the first gap its frames are the calls;
    /// and if all words were kept, there is none.
    #[test]
    fn frames_are_the_calls(
        functions in proptest::collection::vec(
            (kind(), proptest::collection::vec(left(), 0..6)), 1..12),
        kept in 0..40usize,
    ) {
        let made = Made::new(&functions);
        let innermost = functions.len() as u64;
        let calls: Vec<u64> = (0..=innermost).rev().collect();
        let frame = made.frame.and_then(|word| made.position(word));
        let kernel = made.kernel(innermost);
        let all = made.kept();
        let whole = settled(&kernel, frame, &all, &made.rules);
        prop_assert_eq!(whole, (calls.clone(), Some(vec![])));
        let (frames, gaps) = settled(&kernel, frame, &all[..kept.min(all.len())], &made.rules);
        let gap = gaps.unwrap().first().map_or(frames.len(), |gap| gap + 1);
        prop_assert_eq!(&frames[..gap], &calls[..gap]);
    }

    /// The tables and the log may be forged: it ends.
    #[test]
    fn nonsense_ends(
        words in proptest::collection::vec((0..30u64, 0..6u64, proptest::bool::ANY), 0..20),
        rules in proptest::collection::vec((0..4u64, any::<u64>(), 0..64u64), 6),
        kernel in proptest::collection::vec(0..6u64, 0..9),
        frame in proptest::option::of(any::<u64>()),
    ) {
        let word = |(at_word, what, is_frame): &(u64, u64, bool)| match is_frame {
            true => saved(8 * at_word, 8 * what),
            false => ret(8 * at_word, *what),
        };
        let words: Vec<Word> = words.iter().map(word).collect();
        let rule = |(function, (kind, far, near)): (usize, &(u64, u64, u64))| {
            let bytes = if far % 2 == 0 { *far } else { 8 * near };
            let rule = match kind {
                0 => stack(bytes, Saved::Kept),
                1 => stack(bytes, Saved::Below(*near)),
                2 => Rule::Caller(Caller { end: End::Frame(bytes), frame: Saved::Below(bytes) }),
                _ => Rule::Absent,
            };
            (function as u64, rule)
        };
        let rules: Vec<_> = rules.iter().enumerate().map(rule).collect();
        let (frames, _) = settled(&kernel, frame, &words, &rules);
        prop_assert!(frames.len() <= FRAMES_MAX);
    }
}

/// Those of samples.
#[test]
fn words_that_are_far_up_count() {
    let rules = [(1, stack(8, Saved::Kept)), (2, stack(5000, Saved::Kept)), (3, Rule::Outermost)];
    let words = [ret(0, 2), ret(5000, 3)];
    assert_eq!(settled(&[1], None, &words, &rules), (vec![1, 2, 3], Some(vec![])));
    // What the kernel took for a frame that far up, and was no return address, is left out if it
    // was looked at.
    let rules = [(1, Rule::Absent)];
    assert_eq!(settled(&[1, 7], Some(3000), &words[1..], &rules), (vec![1], Some(vec![0])));
    assert_eq!(settled(&[1, 7], Some(3000), &[], &rules), (vec![1, 7], Some(vec![0])));
}

#[test]
fn a_stack_with_more_frames_than_are_printed_is_cut() {
    let words: Vec<Word> = (0..300).map(|n| ret(8 * n, 1)).collect();
    let raw = Raw { kernel: Vec::new(), frame: None, words };
    let stack_of = UserStack { frames: vec![at(1)], raw: Some(raw), ..UserStack::default() };
    let mut code = Code { stacks: vec![stack_of], ..Code::default() };
    settle(&mut code, &[(at(1), stack(8, Saved::Kept))].into());
    assert!(code.stacks[0].cut && code.stacks[0].frames.len() == FRAMES_MAX);
}
