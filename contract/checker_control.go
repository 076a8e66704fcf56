package contract

import "github.com/kvferry/kvferry/effects"

// controlState is the Checker's state of the control plane.
type controlState struct {
	conns    map[effects.Conn]connRecord
	requests map[effects.Request]bool // true: answered
	crossed  [CrossingCount]uint64
}

// A connRecord is the state of a Conn that Opened returned.
type connRecord struct {
	channel effects.Channel
	window  uint16
	pending uint16 // outstanding Sends
	closed  bool
	lost    bool
}

func newControlState() controlState {
	return controlState{conns: map[effects.Conn]connRecord{}, requests: map[effects.Request]bool{}}
}

func checkOpen(e *effects.Open) error {
	if !e.Channel.AllowsWindow(e.Window) {
		return newBreach(Machine, "it opens %v with a window of %d, and no answer there can be told from another",
			e.Channel, e.Window)
	}
	return nil
}

func (w *controlState) checkOpened(ev *effects.Opened, ch effects.Channel, window uint16) error {
	if ev.Code != effects.OK {
		if ev.Conn != 0 {
			return newBreach(Driver, "an open that ended as %v gives conn %d", ev.Code, ev.Conn)
		}
		return nil
	}
	if _, used := w.conns[ev.Conn]; used || ev.Conn == 0 {
		return newBreach(Driver, "conn %d was given before or is zero", ev.Conn)
	}
	w.conns[ev.Conn] = connRecord{channel: ch, window: max(window, 1)}
	return nil
}

func (w *controlState) checkClose(id effects.Conn) error {
	c, ok := w.conns[id]
	if !ok || c.closed {
		return newBreach(Machine, "it closes conn %d, which it does not have", id)
	}
	c.closed = true
	w.conns[id] = c
	return nil
}

func (w *controlState) checkSend(e *effects.Send) error {
	c, ok := w.conns[e.Conn]
	switch {
	case !ok || c.closed:
		return newBreach(Machine, "it sends on conn %d, which it does not have", e.Conn)
	case !c.channel.HasReplies():
		return newBreach(Machine, "it asks on conn %d, which only tells", e.Conn)
	case c.pending >= c.window:
		return newBreach(Machine, "it asks on conn %d while %d of %d requests are in flight there", e.Conn, c.pending, c.window)
	}
	c.pending++
	w.conns[e.Conn] = c
	return nil
}

func (w *controlState) checkPost(e *effects.Post) error {
	switch c, ok := w.conns[e.Conn]; {
	case !ok || c.closed:
		return newBreach(Machine, "it posts on conn %d, which it does not have", e.Conn)
	case c.channel.HasReplies():
		return newBreach(Machine, "it tells on conn %d, which asks", e.Conn)
	}
	return nil
}

// endRequest records the completion of a request in flight. The completion may arrive after Close if the reply was in
// the mailbox by then; the Corr identifies the request.
func (w *controlState) endRequest(id effects.Conn, with effects.Code) error {
	c := w.conns[id]
	if c.lost && with == effects.OK {
		return newBreach(Driver, "an answer comes on conn %d after its loss was told", id)
	}
	if c.closed && with == effects.OK {
		w.crossed[ReplyAfterClose]++
	}
	c.pending--
	w.conns[id] = c
	return nil
}

// checkConnLost checks a ConnLost. A ConnLost may also concern a connection that a peer opened, which has no entry
// here. A Send that crossed with the loss may still be open, and is not answered any more.
func (w *controlState) checkConnLost(id effects.Conn) error {
	c, ours := w.conns[id]
	switch {
	case !ours:
		return nil
	case c.lost:
		return newBreach(Driver, "the loss of conn %d is told twice", id)
	}
	c.lost = true
	w.conns[id] = c
	return nil
}

func (w *controlState) checkReceived(ev *effects.Received) error {
	if ev.Request == 0 {
		return nil
	}
	if _, used := w.requests[ev.Request]; used {
		return newBreach(Driver, "request %d is received twice", ev.Request)
	}
	w.requests[ev.Request] = false
	return nil
}

func (w *controlState) checkReply(id effects.Request) error {
	answered, known := w.requests[id]
	if !known || answered {
		return newBreach(Machine, "it answers request %d, which never was or has its answer", id)
	}
	w.requests[id] = true
	return nil
}
