package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A shutdown takes a node's parts down. The work continues independently of waiting callers: the end of a caller's
// context ends only the wait.
type shutdown struct {
	done chan struct{} // closed when all parts have ended
	// The following fields are read after done is closed.
	err        error
	memoryLeft bool // the memory could not be returned
}

// startShutdown begins to take the parts down, in the order of their dependencies. The loop continues until the sockets
// and planes have posted all completions to the mailbox, so that no memory is reported as returned while a plane still
// has access; the pool is closed last. The call may be repeated after a closing that left memory.
func (n *Node) startShutdown() *shutdown {
	c, w, bg := &shutdown{done: make(chan struct{})}, n.driver, context.Background()
	go func() {
		defer close(c.done)
		controlErr := w.control.Shutdown(bg)
		var planeErr error
		for _, p := range w.planes {
			planeErr = errors.Join(planeErr, p.Close(bg))
		}
		workErr := errors.Join(w.scatterCalls.close(bg), w.memory.awaitCopies(bg))
		w.guard.Close()
		n.loop.shutDown()
		w.verifications.tasks.awaitIdle(bg) // From here on the machine starts none, and none reads the pool.
		n.loop.mailbox.close()
		if r := n.loop.recorder; r != nil {
			r.Close(recordingTimeout)
		}
		if n.tickets.hasFailed() {
			c.err = n.finishFailed(errors.Join(controlErr, planeErr, workErr))
			return
		}
		// On an error, planes or a device may still access the pools.
		planeErr = errors.Join(planeErr, workErr)
		n.tickets.endAll(planeErr == nil)
		n.tasks.Wait()
		if planeErr == nil {
			planeErr = w.memory.close(bg)
		}
		n.driver.facts.lines.FlushSkipped()
		n.logHandler.Flush(flushTimeout)
		c.memoryLeft = planeErr != nil
		c.err = errors.Join(controlErr, planeErr)
	}()
	return c
}

// finishFailed ends the remaining parts of a rank that has failed, and returns the error of Close. The state of the
// failed machine proves nothing about the pages, so the pages stay mapped. The planes' own state is proof: if all planes
// were closed without an error, nothing touches the pages any more, so the grants are revoked and the memory of open
// commands is returned (M8). Otherwise that memory is never returned.
func (n *Node) finishFailed(err error) error {
	if err == nil {
		n.driver.memory.revokeAll()
		n.tickets.endAll(true)
	}
	n.tasks.Wait()
	<-n.failed
	n.logHandler.Flush(flushTimeout)
	return &Error{Op: "close", Code: effects.Failed, Cause: errors.Join(n.failure, err),
		Remedy: "the rank has failed: its memory stays mapped until the process ends"}
}

// awaitEnd waits until the closing has ended or ctx ends. After all remaining parts have ended, the call waits for the
// engine's work no longer than timeout.
func (c *shutdown) awaitEnd(ctx context.Context, n *Node, timeout time.Duration) error {
	var remaining []string
	if n.tickets.hasFailed() {
		return c.awaitFailedEnd(ctx)
	}
	if err := n.driver.control.Shutdown(ctx); err != nil && ctx.Err() != nil {
		remaining = append(remaining, "the control sockets")
	}
	for _, p := range n.driver.planes {
		if err := p.Close(ctx); err != nil && ctx.Err() != nil {
			remaining = append(remaining, "plane "+p.Name())
		}
	}
	workErr, cancel := context.WithTimeout(ctx, max(timeout, time.Second))
	defer cancel()
	if len(remaining) == 0 {
		if err := errors.Join(n.driver.scatterCalls.close(workErr), n.driver.memory.awaitCopies(workErr)); err != nil {
			return err
		}
	}
	select {
	case <-c.done: // Checked first, so that the result counts even if ctx has ended.
		return c.err
	default:
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	if len(remaining) == 0 {
		remaining = []string{"the pools"}
	}
	return &Error{Op: "close", Code: contextCode(ctx), Count: len(remaining), Cause: ctx.Err(),
		Remedy: fmt.Sprintf("still ending: %s; this continues in the background, and then the pool is unmapped; close again "+
			"to wait", strings.Join(remaining, ", "))}
}

// awaitFailedEnd is awaitEnd for a rank that has failed. No part of the failed rank is called, because a part may still
// hold a lock.
func (c *shutdown) awaitFailedEnd(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	default:
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return &Error{Op: "close", Code: contextCode(ctx), Cause: ctx.Err(), Remedy: "the rank has failed, and some of its " +
			"parts have not ended yet; they end in the background, and the memory stays mapped until the process ends"}
	}
}
