package communicator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/tools/transcript"
)

// The transcripts in testdata/initiator are stories of single links. Times are in ms. Directives:
//
//	link [window=N] [tries=N] [transfers=N]   begins; answers are waited for 50, batches 100, cancelled ones 20
//	want CORR grant=G batches=N [until=T] [since=T]
//	cancel CORR
//	accept EPOCH [code=CODE] [revoked=(G,...)] [more]
//	formed EPOCH [code=CODE]
//	submits late|broken                       what the next submission comes to; without it they go well
//	ends EPOCH [badly]                        the oldest batch in flight ends
//	target-fences | stuck | no-proof | torn-down EPOCH
//	channel-lost / drop / close
//	pass MS                                   time passes, and the initiator is told
//
// After each the driver submits all that it may.
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/initiator", func() func(transcript.Directive) string { return (&story{}).directive })
}

// A story is one initiator with what is written about it.
type story struct {
	l   Initiator
	out Effects
	now effects.Time
	how Outcome
	log strings.Builder
}

func ms(n int) effects.Time { return effects.Time(n) * effects.Time(effects.Millisecond) }

func (s *story) directive(d transcript.Directive) string {
	s.log.Reset()
	number, first := d.IntValue, d.FirstNumber
	ofEpoch := func(kind EventKind) Event { return Event{Kind: kind, Epoch: uint64(first())} }
	var ev Event
	switch d.Cmd {
	case "link":
		s.l = NewInitiator(Rules{
			Window: number("window", 2), Tries: number("tries", 2), Transfers: number("transfers", 4),
			AnswerTimeout: effects.Duration(ms(50)), ProgressTimeout: effects.Duration(ms(100)), Grace: effects.Duration(ms(20)),
		})
		s.now, s.how, ev.Kind = ms(1000), InFlight, Begin
	case "want":
		ev = Event{
			Kind: Transfer, Corr: effects.Corr(first()), Grant: effects.GrantID(number("grant", 0)),
			Batches: number("batches", 1), NotAfter: ms(number("until", 9000)), Since: ms(number("since", 1000)),
		}
	case "cancel":
		ev = Event{Kind: Cancel, Corr: effects.Corr(first())}
	case "accept":
		ev = ofEpoch(Accepted)
		ev.Code, ev.MoreRevoked = d.CodeValue(), d.HasArg("more")
		for _, n := range d.UintValues("revoked") {
			ev.Revoked = append(ev.Revoked, effects.GrantID(n))
		}
	case "formed":
		ev = ofEpoch(Formed)
		ev.Code = d.CodeValue()
	case "submits":
		s.how = map[string]Outcome{"late": TooLate, "broken": SubmitFailed}[d.WordAt(0)]
		return ""
	case "ends":
		ev = ofEpoch(BatchEnded)
		ev.Succeeded = !d.HasArg("badly")
	case "target-fences":
		ev = ofEpoch(TargetFenced)
	case "stuck":
		ev = ofEpoch(Stuck)
	case "no-proof":
		ev = ofEpoch(NoProof)
	case "torn-down":
		ev = ofEpoch(TornDown)
	case "channel-lost":
		ev.Kind = ChannelLost
	case "drop":
		ev.Kind = Drop
	case "close":
		ev.Kind = Close
	case "pass":
		s.now += ms(first())
		ev.Kind = Tick
	default:
		d.FailUnknown()
	}
	s.step(ev)
	for b, ok := s.l.Next(); ok; b, ok = s.l.Next() {
		fmt.Fprintf(&s.log, "submit batch %d of transfer %d\n", b.Index, b.Corr)
		s.step(Event{Kind: Submitted, Outcome: s.how})
		s.how = InFlight
	}
	s.state()
	return s.log.String()
}

func (s *story) step(ev Event) {
	s.l.Step(s.now, &ev, &s.out)
	for _, p := range s.out.Posts {
		switch p.Kind {
		case PostImported:
			fmt.Fprintf(&s.log, "machine <- imported, %v\n", p.Code)
		case PostTransferDone:
			settled := "settled"
			if !p.Settled {
				settled = "hardware is still at it"
			}
			fmt.Fprintf(&s.log, "machine <- transfer %d ended, %v, %s\n", p.Corr, p.Code, settled)
		case PostSettled:
			fmt.Fprintf(&s.log, "machine <- transfer %d settled, %v\n", p.Corr, p.Code)
		case PostLinkLost:
			fmt.Fprintf(&s.log, "machine <- link lost\n")
		case PostDropped:
			fmt.Fprintf(&s.log, "machine <- dropped\n")
		}
	}
	for _, say := range s.out.Messages {
		fmt.Fprintf(&s.log, "target <- %s %d\n", words[say.Kind], say.Epoch)
	}
	if s.out.FormEpoch != 0 {
		fmt.Fprintf(&s.log, "form %d\n", s.out.FormEpoch)
	}
	if d := s.out.TearDown; d.Epoch != 0 {
		fmt.Fprintf(&s.log, "tear down %d, %d in flight\n", d.Epoch, d.InFlight)
	}
	s.out.Reset()
}

var words = map[MessageKind]string{MessageOffer: "offer", MessageFenced: "fenced", MessageGone: "gone"}

func (s *story) state() {
	phases := map[phase]string{phaseOffered: "offered", phaseForming: "forming", phaseUp: "up", phaseTearingDown: "tearing down",
		phaseOver: "over"}
	fmt.Fprintf(&s.log, "-- %dms: epoch %d, %s", s.now/ms(1), s.l.epoch, phases[s.l.phase])
	if n := s.l.queue.Len(); n > 0 {
		fmt.Fprintf(&s.log, ", %d open", n)
	}
	if n := len(s.l.inFlight); n > 0 {
		fmt.Fprintf(&s.log, ", %d batches in flight", n)
	}
	if at, ok := s.l.Deadline(); ok {
		fmt.Fprintf(&s.log, ", wakes in %v", at.Sub(s.now))
	}
	if s.l.IsUnproven() {
		s.log.WriteString(", no proof")
	}
	if s.l.IsFinished() {
		fmt.Fprintf(&s.log, ", finished with %d rows left", s.l.transfers.Len()+s.l.timers.Len())
	}
	s.log.WriteString("\n")
}
