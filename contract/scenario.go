package contract

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// A Scenario is a situation between two nodes, and the endings that may result. A real driver may produce any of these
// endings; the simulated driver must produce all of these endings over its seeds.
type Scenario[S Stage] struct {
	Name string
	May  []Ending
	run  func(p *play, stage S) Ending
}

// Run plays the scenario on a fresh stage and returns the ending. The error is a *Breach, or says which expectation was
// not met.
func (s Scenario[S]) Run(stage S) (Ending, error) {
	p := &play{stage: stage, sides: [2]side{{checker: New(true)}, {checker: New(true)}}, confirm: judge}
	end := s.run(p, stage)
	if p.err == nil && !slices.Contains(s.May, end) {
		p.err = fmt.Errorf("it ended as %v, which it may not", end)
	}
	p.finish()
	if p.err != nil {
		p.err = fmt.Errorf("scenario %q: %w", s.Name, p.err)
	}
	return end, p.err
}

// may lists the endings of a verb with the codes, all settled.
func may(v Verb, codes ...effects.Code) (list []Ending) {
	for _, c := range codes {
		list = append(list, Ending{Of: v, Code: c})
	}
	return list
}

// failing lists the endings of a transfer that began and failed. Each may be settled or not, because the plane decides
// whether the initiator's side still reads pages at that instant.
func failing(codes ...effects.Code) (list []Ending) {
	for _, c := range codes {
		list = append(list, Ending{Of: Transferring, Code: c}, Ending{Of: Transferring, Code: c, Unsettled: true})
	}
	return list
}

// judge confirms a landing as a machine would.
func judge(l *effects.Landed) effects.Code {
	if l.Complete {
		return effects.OK
	}
	return effects.Faulted
}

// A play runs a scenario. The first error is kept, and later calls do nothing, so that scenarios need no error
// handling.
type play struct {
	stage Stage
	sides [2]side
	// confirm answers each Landed at once; nil leaves the answer to the scenario.
	confirm func(*effects.Landed) effects.Code
	mailbox []posted // reported by the stage, but not yet taken
	taken   []posted // all events taken, for scenarios that look back
	err     error
}

// posted is an event and the node that received it.
type posted struct {
	at End
	ev effects.Event
}

// side is the state of a node of the running scenario.
type side struct {
	checker    *Checker
	corr       effects.Corr
	grant      effects.GrantID
	generation effects.Generation
	killed     bool
}

func (p *play) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *play) do(at End, e effects.Effect) {
	if p.err != nil {
		return
	}
	if p.err = p.sides[at].checker.Asked(e); p.err == nil {
		p.stage.Do(at, e)
	}
}

func (p *play) corr(at End) effects.Corr {
	p.sides[at].corr++
	return p.sides[at].corr
}

func (p *play) kill(at End) {
	if p.err == nil {
		p.sides[at].killed = true
		p.stage.Kill(at)
	}
}

// next takes an event and passes it to the checker of the event's node.
func (p *play) next() (End, effects.Event, bool) {
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
	if err := p.sides[at].checker.Told(ev); err != nil {
		p.fail("at %v: %w", at, err)
		return 0, nil, false
	}
	p.taken = append(p.taken, posted{at, ev})
	if l, landed := ev.(*effects.Landed); landed && p.confirm != nil && !p.sides[at].killed {
		p.do(at, &effects.Confirm{Landing: l.Landing, Code: p.confirm(l)})
	}
	return at, ev, p.err == nil
}

// until takes events until an event of type E at this end fits.
func until[E effects.Event](p *play, at End, fits func(E) bool) (none E) {
	for p.err == nil {
		end, ev, ok := p.next()
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

// eventually is like until, but the event may also have arrived while the scenario waited for something else.
func eventually[E effects.Event](p *play, at End, fits func(E) bool) (none E) {
	for _, x := range p.taken {
		if e, is := x.ev.(E); is && x.at == at && fits(e) && p.err == nil {
			return e
		}
	}
	return until(p, at, fits)
}

// waits collects events in the mailbox until the mailbox contains an event of type E that fits. The scenario then acts
// as a machine that has seen none of the events.
func waits[E effects.Event](p *play, at End, fits func(E) bool) {
	for p.err == nil {
		end, ev, ok := p.stage.Next()
		if !ok {
			var none E
			p.fail("no %T that fits came to %v", none, at)
			return
		}
		p.mailbox = append(p.mailbox, posted{end, ev})
		if e, is := ev.(E); is && end == at && fits(e) {
			return
		}
	}
}

// whatever fits any event of a type.
func whatever[E effects.Event](E) bool { return true }

// finish lets everything end and checks that no completion is outstanding. A killed node owes nothing, because its
// machine is gone.
func (p *play) finish() {
	first := p.err
	p.err = nil // A scenario that failed must still be brought to its end.
	p.stage.Finish()
	for {
		if _, _, ok := p.next(); !ok {
			break
		}
	}
	for end := range p.sides {
		if err := p.sides[end].checker.Owed(); err != nil && !p.sides[end].killed && p.err == nil {
			p.err = fmt.Errorf("at %v: %w", End(end), err)
		}
	}
	if first != nil {
		p.err = first
	}
}
