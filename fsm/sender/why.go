package sender

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/protocol"
)

// What this room says of a failure, beside its code. All of it is made where something failed.

// turnDown refuses a command at once, for a reason that has to do with nobody else.
func turnDown(v *env.Env, t effects.Ticket, code effects.Code, why *effects.Why) {
	why.Stage = effects.StageCommand
	v.Out.Deliver(effects.Deliver{Ticket: t, Code: code, Why: why})
}

// stage is how far a put is.
func (p *put) stage() effects.Stage {
	switch p.phase {
	case asking:
		return effects.StageAsk
	case moving, settling:
		return effects.StageTransfer
	case committing, confirming:
		return effects.StageCommit
	case offering, offered:
		return effects.StageOffer
	case short:
		return effects.StageMemory
	case copying:
		return effects.StageCopy
	case waiting:
	}
	if p.pull != (protocol.PullID{}) {
		return effects.StageOffer
	}
	return effects.StageAsk
}

// outOfTime is what is said of a put whose time is over.
func (s *Sender) outOfTime(v *env.Env, l *link.Links, p *put) effects.Why {
	w := effects.Why{Field: "put_timeout", Ours: p.patience.String(), Theirs: "no answer"}
	switch p.phase {
	case waiting:
		if state, _ := l.Outbound(p.peer).State(); state == link.Ready {
			w.Theirs = "busy with what came before"
		} else {
			w.Stage, w.Theirs = l.Outbound(p.peer).Stage(), "not connected"
			if l.Outbound(p.peer).Silent() {
				w = link.NoHello(w.Field, p.patience)
			}
		}
		if s.queues[p.peer.Slot()].hungry {
			w.Stage, w.Theirs = effects.StageMemory, ""
			w.Ours += ", with " + number(v.Pool.Lent()) + " of " + number(s.cfg.HighWater) + " pages lent"
		}
	case moving:
		w.Theirs = "not all arrived"
	case short:
		w.Theirs = ""
		w.Field = "pd_cpu_buffer_size"
		w.Ours = number(v.Pool.Taken()) + " of " + number(s.cfg.HighWater) + " pages in use for " + p.patience.String()
		w.Remedy = "retry later, or enlarge pd_cpu_buffer_size"
	case copying:
		w.Theirs = ""
	case asking, settling, committing, confirming, offering, offered:
	}
	return w
}

// said is what a peer's code says beside itself: its words, or that it has none.
func said(reason []byte) effects.Why {
	if len(reason) == 0 {
		return effects.Why{Field: "kvf_reason", Theirs: "not given"}
	}
	return effects.Why{Said: effects.Words(reason)}
}

func where(p Peer) string {
	return effects.Words([]byte(p.Host)) + ":" + number(uint32(p.InitPort)) + "," + number(uint32(p.AllocPort))
}

func number[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func atStage(s effects.Stage, w effects.Why) effects.Why {
	w.Stage = s
	return w
}

// hungUp is what is said of a put whose question got no answer, as often as it was asked.
func (s *Sender) hungUp(code effects.Code) effects.Why {
	w := link.HungUp(code, s.cfg.ReplyTimeout)
	if w.Ours != "" {
		w.Ours += ", " + number(attemptsMax) + " times"
	}
	return w
}

// malformed notes that a peer's answer makes no sense.
func (s *Sender) malformed(v *env.Env, p *put, why effects.Why) {
	p.blame(effects.Malformed, why)
	why.Addr, why.Peer, why.Stage = p.where.Addr(), p.who, p.stage()
	v.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(p.conn), Peer: p.who, Why: &why,
	})
}

// refusalOf is what a refusal says. One without words, as of a plain receiver, says no more than that it is one.
func refusalOf(words string) effects.Why {
	if words == "" {
		return effects.Why{Field: "alloc_failed", Theirs: "true"}
	}
	return effects.Why{Said: words}
}
