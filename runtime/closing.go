package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A closing takes a node's parts down, whoever waits for it and for how long: what a context ends is the wait alone.
type closing struct {
	over chan struct{} // closed when all has ended
	// Read after over.
	err  error
	left bool // the memory could not be given back
}

// take begins to take the parts down, in the order in which they depend on each other: the loop goes on until sockets
// and planes have completed everything into it, so that no memory is said to be back that something is still at; the
// pool goes last. It may be begun again after one that left memory.
func (n *Node) take() *closing {
	c, w, bg := &closing{over: make(chan struct{})}, n.world, context.Background()
	go func() {
		defer close(c.over)
		served := w.control.Shutdown(bg)
		var moving error
		for _, p := range w.planes {
			moving = errors.Join(moving, p.Close(bg))
		}
		working := errors.Join(w.scatters.close(bg), w.memory.idle(bg))
		n.loop.end()
		n.loop.mailbox.close()
		if n.tickets.hasFallen() {
			c.err = n.fallen(errors.Join(served, moving, working))
			return
		}
		n.tickets.abandon()
		n.tasks.Wait()
		if moving = errors.Join(moving, working); moving == nil { // Else planes, or a device, are still at the pools.
			moving = w.memory.close(bg)
		}
		n.world.facts.lines.End()
		n.lines.Flush(flushPatience)
		c.left = moving != nil
		c.err = errors.Join(served, moving)
	}()
	return c
}

// fallen ends what is left of a rank that has failed. What its machine believed of its pages proves nothing, so they
// stay; what the planes know does, and so what is held for peers may be the engine's again once they have closed.
func (n *Node) fallen(left error) error {
	if left == nil {
		n.world.memory.retract()
		n.tickets.abandon()
	}
	n.tasks.Wait()
	<-n.failed
	n.lines.Flush(flushPatience)
	return &Error{Op: "close", Code: effects.Failed, Cause: errors.Join(n.failure, left),
		Remedy: "the rank has failed: its memory stays mapped until the process ends"}
}

// wait waits for the end, until ctx ends, and for work of the engine no longer than patience after everything else.
func (c *closing) wait(ctx context.Context, n *Node, patience time.Duration) error {
	var still []string
	if n.tickets.hasFallen() {
		return c.waitFallen(ctx)
	}
	if err := n.world.control.Shutdown(ctx); err != nil && ctx.Err() != nil {
		still = append(still, "the control sockets")
	}
	for _, p := range n.world.planes {
		if err := p.Close(ctx); err != nil && ctx.Err() != nil {
			still = append(still, "plane "+p.Name())
		}
	}
	working, cancel := context.WithTimeout(ctx, max(patience, time.Second))
	defer cancel()
	if len(still) == 0 {
		if err := errors.Join(n.world.scatters.close(working), n.world.memory.idle(working)); err != nil {
			return err
		}
	}
	select {
	case <-c.over: // Also where ctx has ended: there is nothing to wait for.
		return c.err
	default:
	}
	select {
	case <-c.over:
		return c.err
	case <-ctx.Done():
	}
	if len(still) == 0 {
		still = []string{"the pools"}
	}
	return &Error{Op: "close", Code: waitedOut(ctx), Count: len(still), Cause: ctx.Err(),
		Remedy: fmt.Sprintf("still ending: %s; that goes on by itself, and the pool is unmapped then; close again to wait "+
			"for it", strings.Join(still, ", "))}
}

// waitFallen is wait for a rank that has failed. It calls nothing of what failed, which may have kept a lock.
func (c *closing) waitFallen(ctx context.Context) error {
	select {
	case <-c.over:
		return c.err
	default:
	}
	select {
	case <-c.over:
		return c.err
	case <-ctx.Done():
		return &Error{Op: "close", Code: waitedOut(ctx), Cause: ctx.Err(), Remedy: "what is left of the rank, " +
			"which has failed, has not ended; it goes on to, and its memory stays mapped until the process ends"}
	}
}
