//! The steps that end a process: interrupt, closed stdin, SIGTERM, SIGKILL.

use super::*;

#[test]
fn escalation_takes_one_step_at_a_time() {
    let mut machine = working();
    let effects = machine.handle_command(AttemptCommand::Interrupt);
    assert!(
        asks(&effects, "interrupt")
            && effects.contains(&AttemptEffect::SetTimer(AttemptTimer::Escalation))
    );
    assert_eq!(machine.handle_command(AttemptCommand::Interrupt), []);
    assert_eq!(
        machine.handle_timer(AttemptTimer::Escalation),
        [
            AttemptEffect::SignalGroup(Signal::SIGTERM),
            AttemptEffect::SetTimer(AttemptTimer::Escalation)
        ]
    );
    assert_eq!(
        machine.handle_timer(AttemptTimer::Escalation),
        [
            AttemptEffect::SignalGroup(Signal::SIGKILL),
            AttemptEffect::SetTimer(AttemptTimer::Escalation)
        ]
    );
    assert_eq!(
        machine.handle_timer(AttemptTimer::Escalation),
        [AttemptEffect::StopWaiting]
    );
    assert_eq!(
        machine.into_facts().interruption.stopped,
        Some(StopMode::Stop)
    );
}

#[test]
fn interrupted_turn_end_closes_stdin_and_keeps_escalation() {
    let mut machine = working();
    machine.handle_command(AttemptCommand::Interrupt);
    assert_eq!(line(&mut machine, RESULT), [AttemptEffect::CloseStdin]);
    assert_eq!(
        machine.handle_timer(AttemptTimer::Escalation)[0],
        AttemptEffect::SignalGroup(Signal::SIGTERM)
    );
}

#[test]
fn kill_skips_the_interrupt() {
    let mut machine = working();
    machine.handle_command(AttemptCommand::Interrupt);
    assert_eq!(
        machine.handle_command(AttemptCommand::Kill)[0],
        AttemptEffect::SignalGroup(Signal::SIGTERM)
    );
    assert_eq!(
        machine.handle_timer(AttemptTimer::Escalation)[0],
        AttemptEffect::SignalGroup(Signal::SIGKILL)
    );
    assert_eq!(
        machine.into_facts().interruption.stopped,
        Some(StopMode::Kill)
    );
}

#[test]
fn interrupt_before_prompt_only_closes_stdin() {
    let mut machine = machine();
    machine.start();
    assert_eq!(
        machine.handle_command(AttemptCommand::Interrupt),
        [
            AttemptEffect::CloseStdin,
            AttemptEffect::SetTimer(AttemptTimer::Escalation)
        ]
    );
    // Another timer would replace the escalation's, and the escalation would stop.
    assert_eq!(reply(&mut machine, 1, json!({})), []);
    assert_eq!(
        machine.handle_timer(AttemptTimer::Escalation),
        [
            AttemptEffect::SignalGroup(Signal::SIGTERM),
            AttemptEffect::SetTimer(AttemptTimer::Escalation)
        ]
    );
}

#[test]
fn stop_after_result_does_not_mark_stopped() {
    let mut machine = working();
    line(&mut machine, RESULT);
    assert_eq!(
        machine.handle_command(AttemptCommand::Interrupt)[0],
        AttemptEffect::SignalGroup(Signal::SIGTERM)
    );
    let facts = machine.into_facts();
    assert_eq!(facts.interruption.stopped, None);
    assert!(facts.reported.result.is_some());
}

/// Its stdout has ended, and its exit is not known yet.
#[test]
fn stop_during_exit_does_not_hide_a_refused_start() {
    let ended = |code: i32| {
        let mut machine = machine();
        machine.start();
        machine.handle_stderr_line("Configuration error in /h/.claude.json: Unexpected EOF");
        machine.handle_stdout_closed();
        assert_eq!(
            machine.handle_command(AttemptCommand::Interrupt)[0],
            AttemptEffect::SignalGroup(Signal::SIGTERM)
        );
        machine.handle_exit(ProcessExit {
            code: Some(code),
            signal: None,
        });
        judge_attempt(
            &UnitKey::new("u"),
            &machine.into_facts(),
            FailureRule::default(),
        )
        .cause
    };
    assert_eq!(ended(1), VerdictCause::StartFailed);
    assert_ne!(
        ended(128 + 15),
        VerdictCause::StartFailed,
        "it may have ended by the signal"
    );
}

#[test]
fn process_that_does_not_exit_is_terminated() {
    let mut machine = working();
    line(&mut machine, RESULT);
    assert_eq!(
        machine.handle_timer(AttemptTimer::Exit)[0],
        AttemptEffect::SignalGroup(Signal::SIGTERM)
    );
    assert_eq!(
        machine.handle_timer(AttemptTimer::Escalation)[0],
        AttemptEffect::SignalGroup(Signal::SIGKILL)
    );
}

#[test]
fn after_exit_only_pipes_are_drained() {
    let mut machine = working();
    assert_eq!(
        machine.handle_exit(ProcessExit {
            code: Some(1),
            signal: None
        }),
        [AttemptEffect::SetTimer(AttemptTimer::Drain)]
    );
    assert_eq!(line(&mut machine, RESULT), [AttemptEffect::CloseStdin]);
    assert_eq!(machine.handle_command(AttemptCommand::Kill), []);
    assert_eq!(
        machine.handle_timer(AttemptTimer::Drain),
        [AttemptEffect::StopWaiting]
    );
    assert_eq!(machine.into_facts().process.exit_code, Some(1));
}
