package communicator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/tools/transcript"
)

// The transcripts in testdata/target are stories of one target and the links to it. Directives:
//
//	target [sessions=N] [of-peer=N] [epochs=N]   begins
//	arrives S peer=P [from=A] [hccs]             somebody opens link S
//	turns-away S                                 it was let in and could not be told
//	offers | says-fenced | says-gone S E         words of a peer on link S about epoch E
//	led S E [unformed] [stays]                   our end is not worked at any more; without stays it is gone
//	margin S E                                   what its hardware was at has had its time
//	fails S / channel-ends S [proves]
//	revoke N peer=P / closes
func TestTranscriptsOfTargets(t *testing.T) {
	transcript.Play(t, "testdata/target", func() func(transcript.Directive) string {
		var m Target
		return func(d transcript.Directive) string {
			number, named := d.IntValue, d.BareNumbers()
			var ev TargetEvent
			if len(named) > 0 {
				ev.Session = SessionID{byte(named[0])}
			}
			if len(named) > 1 {
				ev.Epoch = uint64(named[1])
			}
			switch d.Cmd {
			case "target":
				m = NewTarget(Limits{
					Sessions: number("sessions", 8), PerPeer: number("of-peer", 2), Reserved: 4,
					Epochs: number("epochs", 2), Revocations: 8,
				}, 1)
				return ""
			case "arrives":
				ev.Kind, ev.Peer = LinkArrived, effects.Incarnation{byte(number("peer", 0))}
				ev.From, ev.MemoryMapped = Address{Bits: uint8(number("from", 0))}, d.HasArg("hccs")
			case "turns-away":
				ev.Kind = WelcomeFailed
			case "offers":
				ev.Kind = EpochOffered
			case "says-fenced":
				ev.Kind = InitiatorFenced
			case "says-gone":
				ev.Kind = InitiatorGone
			case "led":
				ev.Kind, ev.Failed, ev.Gone = EndFinished, d.HasArg("unformed"), !d.HasArg("stays")
			case "margin":
				ev.Kind = MarginPassed
			case "fails":
				ev.Kind = LinkFailed
			case "channel-ends":
				ev.Kind, ev.ProvesGone = ChannelEnded, d.HasArg("proves")
			case "revoke":
				ev.Kind, ev.Revocation, ev.Peer = GrantRevoked, uint64(named[0]), effects.Incarnation{byte(number("peer", 0))}
			case "closes":
				ev.Kind = PlaneClosing
			default:
				d.FailUnknown()
			}
			var out TargetEffects
			m.Step(&ev, &out)
			return describeEffects(&out, ev.Kind) + fmt.Sprintf("-- %d links, %d epochs, %d revocations wait\n",
				m.sessions.Len(), m.epochs.Len(), m.revocations.Len())
		}
	})
}

var entries = map[Admission]string{
	Admitted: "let in", PlaneClosed: "refused: closed", SessionUsed: "refused: its session is another's",
	PeerRenewed: "refused: the peer has as many as it may; its oldest is ended",
	PeerFull:    "refused: the peer has as many as it may, which may still reach the pool",
	TableFull:   "refused: all places are taken", AddressFull: "refused: all places of its address are taken",
}

// describeEffects writes what a step wants done.
func describeEffects(out *TargetEffects, kind TargetEventKind) string {
	var log strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&log, format+"\n", args...) }
	if out.Admission != 0 {
		say("%s", entries[out.Admission])
	}
	switch {
	case kind != EpochOffered:
	case out.NewerEpoch != 0:
		say("nonsense: epoch %d was offered before", out.NewerEpoch)
	case out.MakeEnd:
		say("accepted: make our end")
	default:
		say("accepted as %v: no end is made", out.Code)
	}
	each := func(what string, names []EpochRef) {
		for _, n := range names {
			say(what, n.Session[0], n.Epoch)
		}
	}
	each("expelled: link %d epoch %d", out.FencedToRevoke)
	each("peer of link %d <- fenced %d", out.SendFenced)
	each("link %d: take our end of %d away", out.RemoveEnds)
	for _, s := range out.LostLinks {
		say("machine <- link %d is lost", s[0])
	}
	each("link %d: wait out what the peer's hardware was at by %d", out.StartMargins)
	each("link %d: epoch %d is over", out.OverEpochs)
	for _, n := range out.DoneRevocations {
		say("machine <- revocation %d is proven", n)
	}
	for _, s := range out.EndedSessions {
		say("link %d is forgotten", s[0])
	}
	for _, s := range out.CloseConns {
		say("link %d: hang up", s[0])
	}
	return log.String()
}
