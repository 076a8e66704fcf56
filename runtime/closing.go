package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A closing takes a node's parts down. The work continues independently of waiting callers: the end of a caller's
// context ends only the wait.
type closing struct {
	over chan struct{} // closed when all parts have ended
	// The following fields are read after over is closed.
	err  error
	left bool // the memory could not be returned
}

// take begins to take the parts down, in the order of their dependencies. The loop continues until the sockets and
// planes have posted all completions to the mailbox, so that no memory is reported as returned while a plane still has
// access; the pool is closed last. The call may be repeated after a closing that left memory.
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
		// On an error, planes or a device still access the pools.
		if moving = errors.Join(moving, working); moving == nil {
			moving = w.memory.close(bg)
		}
		n.world.facts.lines.End()
		n.lines.Flush(flushPatience)
		c.left = moving != nil
		c.err = errors.Join(served, moving)
	}()
	return c
}

// fallen ends the remaining parts of a rank that has failed, and returns the error of Close. The state of the failed
// machine proves nothing about the pages, so the pages stay mapped. The planes' own state is proof: once all planes
// are closed, memory that was held for peers may belong to the engine again.
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

// wait waits until the closing has ended or ctx ends. After all remaining parts have ended, the call waits for the
// engine's work no longer than patience.
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
	case <-c.over: // Checked first, so that the result counts even if ctx has ended.
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

// waitFallen is wait for a rank that has failed. No part of the failed rank is called, because a part may still hold a
// lock.
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
