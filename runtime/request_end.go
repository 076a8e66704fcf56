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

// RequestEnd reports to a receiver that a sender puts nothing more for a request.
type RequestEnd struct {
	// Request is the id of the request. No other attempt of the request may have the same id.
	Request string
	Peer    Peer           // the receiver of the request
	Tenant  effects.Tenant // the tenant of the request's chunks; requests of two tenants with one id are two requests
	// Code says why nothing more is sent. OK means that everything was sent.
	Code   effects.Code
	Reason string // the reason as text for people; truncated to 240 bytes
	// Timeout limits the call; 0 selects the configured put_timeout. An earlier deadline of the context takes
	// precedence.
	Timeout time.Duration
}

// EndRequest notifies a receiver of the outcome of a request, and returns when the receiver has confirmed the message.
// The receiver's engine then stops waiting for chunks that will not arrive: a Get or Fetch of the request ends, whether
// it began before or begins afterwards. It ends as SenderFailed if the message has a Code other than OK, and as NotSent
// if it waits for a chunk that was not sent. The message does not require that a page or chunk of the request has been
// sent, or that a handshake has been made.
//
// The error is NotSent if the receiver's engine waits for chunks that were not sent to it, or has reported why the
// chunks that were sent before are of no use to it. In both cases compare how the two engines are configured. With
// Expired or Unreachable the receiver did not confirm the message in time.
func (s Sender) EndRequest(ctx context.Context, c RequestEnd) error {
	n := s.node
	if err := n.requireSide("end request", config.Sender); err != nil {
		return err
	}
	if c.Request == "" {
		return argumentError("end request", "Request", "empty", "the id of a request", "name the request that has ended")
	}
	if c.Code >= effects.CodeCount {
		return argumentError("end request", "Code", fmt.Sprint(uint32(c.Code)), "a code of package effects",
			"give the code with which the request ended")
	}
	reason := []byte(c.Reason)
	if len(reason) > effects.PeerTextMax {
		reason = reason[:effects.PeerTextMax]
	}
	t, err := n.submitCommand("end request", classWork, &end.End{
		Request: []byte(c.Request), Tenant: c.Tenant, Peer: engine.Peer(c.Peer), Code: c.Code, Reason: reason,
		Timeout: commandTimeout(ctx, c.Timeout, n.times().put),
	})
	if err != nil {
		return err
	}
	out := n.awaitOutcome(ctx, t, &engine.Abort{Target: t.id})
	if out.Code == effects.OK {
		return nil
	}
	code, cause := callerCode(ctx, out.Code)
	return (&Error{Op: "end request", Code: code, Cause: cause}).withDetails(out.Details)
}
