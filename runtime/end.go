package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/runtime/config"
)

// End says how a request ended of which nothing more is put.
type End struct {
	Request string // its id; one that no other attempt of the request has
	Peer    Peer   // its receiver
	// Code says why no more comes. OK: all of it was sent.
	Code     effects.Code
	Reason   string        // the same for people; beyond 240 bytes it is cut
	Patience time.Duration // 0: the configured put_timeout. A context's deadline that is earlier counts instead
}

// End tells a receiver how a request ended, and returns when it has confirmed that. Its engine then waits no longer for
// what will not come: a Get or Fetch of the request ends, whether it asks before or after, as SenderFailed if this says
// a Code, and as NotSent if it waits for a chunk of another name. The word needs no page and no chunk of the request to
// have come, and no handshake.
//
// The error is NotSent where that receiver's engine waits for chunks that it was not sent, or said why what was sent
// before is of no use to it: the two engines are to be compared. With Expired or Unreachable the receiver did not hear
// of it in time.
func (s Sender) End(ctx context.Context, c End) error {
	n := s.node
	if err := n.wantSide("end", config.Sender); err != nil {
		return err
	}
	if c.Request == "" {
		return wrong("end", "Request", "empty", "the id of a request", "name the request that has ended")
	}
	if c.Code >= effects.CodeCount {
		return wrong("end", "Code", fmt.Sprint(uint32(c.Code)), "one of package effects", "say how the request ended")
	}
	reason := []byte(c.Reason)
	if len(reason) > effects.WordsMax {
		reason = reason[:effects.WordsMax]
	}
	t, err := n.submit("end", work, &end.End{
		Request: []byte(c.Request), Peer: engine.Peer(c.Peer), Code: c.Code, Reason: reason,
		Patience: patienceOf(ctx, c.Patience, n.cfg.PutTimeout),
	})
	if err != nil {
		return err
	}
	out := n.await(ctx, t, &engine.Abort{Target: t.id})
	if out.Code == effects.OK {
		return nil
	}
	code, cause := endOf(ctx, out.Code)
	return (&Error{Op: "end", Code: code, Cause: cause}).because(out.Why)
}
