package contract

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// A Scenario is a situation between two nodes, and the endings that may result. A real driver may produce any of these
// endings; the simulated driver must produce all of these endings over its seeds.
type Scenario[S Stage] struct {
	Name    string
	Endings []Ending
	run     func(p *trial, stage S) Ending
}

// Run plays the scenario on a fresh stage and returns the ending. The error is a *Breach, or says which expectation was
// not met.
func (s Scenario[S]) Run(stage S) (Ending, error) {
	p := &trial{stage: stage, nodes: [2]nodeState{{checker: New(true)}, {checker: New(true)}}, confirm: confirmLanding}
	end := s.run(p, stage)
	if p.err == nil && !slices.Contains(s.Endings, end) {
		p.err = fmt.Errorf("it ended as %v, which it may not", end)
	}
	p.finishTrial()
	if p.err != nil {
		p.err = fmt.Errorf("scenario %q: %w", s.Name, p.err)
	}
	return end, p.err
}

// endings lists the endings of a verb with the codes, all settled.
func endings(v Verb, codes ...effects.Code) (list []Ending) {
	for _, c := range codes {
		list = append(list, Ending{Verb: v, Code: c})
	}
	return list
}

// failures lists the endings of a transfer that began and failed. Each may be settled or not, because the plane decides
// whether the initiator's side still reads pages at that instant.
func failures(codes ...effects.Code) (list []Ending) {
	for _, c := range codes {
		list = append(list, Ending{Verb: Transferring, Code: c}, Ending{Verb: Transferring, Code: c, Unsettled: true})
	}
	return list
}

// confirmLanding confirms a landing as a machine would.
func confirmLanding(l *effects.Landed) effects.Code {
	if l.Complete {
		return effects.OK
	}
	return effects.Faulted
}

// A trial runs a scenario. The first error is kept, and later calls do nothing, so that scenarios need no error
// handling.
type trial struct {
	stage Stage
	nodes [2]nodeState
	// confirm answers each Landed at once; nil leaves the answer to the scenario.
	confirm func(*effects.Landed) effects.Code
	mailbox []nodeEvent // reported by the stage, but not yet taken
	seen    []nodeEvent // all events taken, for scenarios that look back
	err     error
}

// nodeEvent is an event and the node that received it.
type nodeEvent struct {
	at End
	ev effects.Event
}

// nodeState is the state of a node of the running scenario.
type nodeState struct {
	checker    *Checker
	corr       effects.Corr
	grant      effects.GrantID
	generation effects.Generation
	killed     bool
}

func (p *trial) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *trial) issue(at End, e effects.Effect) {
	if p.err != nil {
		return
	}
	if p.err = p.nodes[at].checker.CheckEffect(e); p.err == nil {
		p.stage.Do(at, e)
	}
}

func (p *trial) nextCorr(at End) effects.Corr {
	p.nodes[at].corr++
	return p.nodes[at].corr
}

func (p *trial) killNode(at End) {
	if p.err == nil {
		p.nodes[at].killed = true
		p.stage.Kill(at)
	}
}

// nextEvent takes an event and passes it to the checker of the event's node.
func (p *trial) nextEvent() (End, effects.Event, bool) {
	var at End
	var ev effects.Event
	if len(p.mailbox) > 0 {
		at, ev = p.mailbox[0].at, p.mailbox[0].ev
		p.mailbox = p.mailbox[1:]
	} else {
		var ok bool
		if at, ev, ok = p.stage.Next(); !ok {
			return 0, nil, false
		}
	}
	if err := p.nodes[at].checker.CheckEvent(ev); err != nil {
		p.fail("at %v: %w", at, err)
		return 0, nil, false
	}
	p.seen = append(p.seen, nodeEvent{at, ev})
	if l, landed := ev.(*effects.Landed); landed && p.confirm != nil && !p.nodes[at].killed {
		p.issue(at, &effects.Confirm{Landing: l.Landing, Code: p.confirm(l)})
	}
	return at, ev, p.err == nil
}

// awaitNew takes events until an event of type E at this end fits.
func awaitNew[E effects.Event](p *trial, at End, fits func(E) bool) (none E) {
	for p.err == nil {
		end, ev, ok := p.nextEvent()
		if !ok {
			p.fail("no %T that fits came to %v", none, at)
			break
		}
		if e, is := ev.(E); is && end == at && fits(e) {
			return e
		}
	}
	return none
}

// awaitEvent is like until, but the event may also have arrived while the scenario waited for something else.
func awaitEvent[E effects.Event](p *trial, at End, fits func(E) bool) (none E) {
	for _, x := range p.seen {
		if e, is := x.ev.(E); is && x.at == at && fits(e) && p.err == nil {
			return e
		}
	}
	return awaitNew(p, at, fits)
}

// queueUntil collects events in the mailbox until the mailbox contains an event of type E that fits. The scenario then
// acts as a machine that has seen none of the events.
func queueUntil[E effects.Event](p *trial, at End, fits func(E) bool) {
	for p.err == nil {
		end, ev, ok := p.stage.Next()
		if !ok {
			var none E
			p.fail("no %T that fits came to %v", none, at)
			return
		}
		p.mailbox = append(p.mailbox, nodeEvent{end, ev})
		if e, is := ev.(E); is && end == at && fits(e) {
			return
		}
	}
}

// anyEvent fits any event of a type.
func anyEvent[E effects.Event](E) bool { return true }

// finishTrial lets everything end and checks that no completion is outstanding. A killed node owes nothing, because its
// machine is gone.
func (p *trial) finishTrial() {
	first := p.err
	p.err = nil // A scenario that failed must still be brought to its end.
	p.stage.Finish()
	for {
		if _, _, ok := p.nextEvent(); !ok {
			break
		}
	}
	for end := range p.nodes {
		if err := p.nodes[end].checker.CheckCompleted(); err != nil && !p.nodes[end].killed && p.err == nil {
			p.err = fmt.Errorf("at %v: %w", End(end), err)
		}
	}
	if first != nil {
		p.err = first
	}
}
