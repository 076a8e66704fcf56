//go:build cgo && linux

package hostile_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

// elsewhere is the address of attackers.
const elsewhere = "127.0.0.66"

// answers has the victim's process ask a peer that answers without end.
func answers(x *attack) error {
	l, err := net.Listen("tcp4", elsewhere+":0")
	if err != nil {
		return err
	}
	var speaking sync.WaitGroup
	cut := make(chan struct{})
	speaking.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			speaking.Go(func() {
				speak(c)
				x.done.Add(1)
				select {
				case cut <- struct{}{}:
				default:
				}
			})
		}
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	a := x.v.says(askSome + port)
	for over := x.over; a.Problems == "" && x.more(); {
		select {
		case <-cut:
		case <-over:
			over = nil
		}
	}
	a = x.v.says(askNobody)
	_ = l.Close()
	speaking.Wait()
	if a.Problems != "" || a.Asked == 0 || a.Answered != 0 {
		return fmt.Errorf("of %d puts to who answers without end %d ended well: %s", a.Asked, a.Answered, a.Problems)
	}
	return nil
}

// speak takes one question, and answers it until it is cut off.
func speak(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	if _, err := zmtp.Handshake(in, func(b []byte) { _, _ = c.Write(b) }, "ROUTER", []string{"DEALER"}); err != nil {
		return
	}
	if _, err := in.ReadByte(); err != nil { // The question's.
		return
	}
	frame := zmtp.AppendFrame(nil, make([]byte, 64<<10), true)
	for {
		if _, err := c.Write(frame); err != nil {
			return
		}
	}
}

// asker is a sender in the victim's process that puts to one peer, again and again.
type asker struct {
	n               *runtime.Node
	peer            runtime.Peer
	over            chan struct{}
	done            chan error
	asked, answered int
}

func askOf(port string) (*asker, error) {
	n, err := setup{Role: "sender", Own: "    link: {backoff_min: 1ms, backoff_max: 10ms}\n"}.
		open(zmq.Config{MaxMessage: 1 << 20, MaxConns: 16}, os.Stderr)
	if err != nil {
		return nil, err
	}
	x := &asker{n: n, peer: runtime.Peer{Host: elsewhere}, over: make(chan struct{}), done: make(chan error, 1)}
	if _, err := fmt.Sscan(port, &x.peer.InitPort); err != nil {
		return nil, err
	}
	x.peer.AllocPort = x.peer.InitPort
	go func() { x.done <- x.run() }()
	return x, nil
}

func (x *asker) run() error {
	ctx := context.Background()
	pages, err := x.n.Sender().Reserve(ctx, 1)
	for err == nil {
		select {
		case <-x.over:
			return pages.Release(ctx)
		default:
		}
		x.asked++
		put := runtime.Put{Peer: x.peer, Request: "asked", Keys: []string{"asked@1@0@1a@bfloat16"}, Pages: pages,
			Timeout: 100 * time.Millisecond}
		if _, err := x.n.Sender().Put(ctx, put); err == nil {
			x.answered++
		}
	}
	return err
}

// end says how many puts there were, and how many ended well.
func (x *asker) end() (asked, answered int, err error) {
	close(x.over)
	if err = <-x.done; err == nil {
		err = x.n.Close(context.Background())
	}
	return x.asked, x.answered, err
}
