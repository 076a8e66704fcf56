//go:build cgo && linux

package runtime_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

// callSituations are what a caller does wrong, and what one node says alone.
var callSituations = []situation{
	{"a put that is wrong", effects.Invalid, func(x *transcript) {
		s, other := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("other", senderConfig(x, "shm",
			effects.Addr{}))
		pages, theirs := mustReserve(x, s, 2), mustReserve(x, other, 1)
		defer mustRelease(x, theirs)
		good := runtime.Put{Peer: runtime.Peer{Host: "127.0.0.1", InitPort: 7300, AllocPort: 7301}, Keys: keysOf("told", 1),
			Pages: pages}
		for _, change := range []func(*runtime.Put){
			func(p *runtime.Put) { p.Pages = nil },
			func(p *runtime.Put) { p.Pages = theirs },
			func(p *runtime.Put) { p.Peer.Host = "" },
			func(p *runtime.Put) { p.Peer.InitPort = 0 },
			func(p *runtime.Put) { p.Peer.AllocPort = 0 },
			func(p *runtime.Put) { p.Keys = nil },
			func(p *runtime.Put) { p.Keys = keysOf("told", 3) },
			func(p *runtime.Put) { p.First = 2 },
			func(p *runtime.Put) { p.LastChunkTokens = 17 },
			func(p *runtime.Put) { p.Last = true },
		} {
			p := good
			change(&p)
			_, err := s.Sender().Put(within(x), p)
			x.addError(err)
		}
		mustRelease(x, pages)
		_, err := s.Sender().Put(within(x), good)
		x.addError(err)
		_, err = pages.Bytes(0)
		x.addError(err)
	}},
	{"a put with a wrong key", effects.Invalid, func(x *transcript) {
		s := x.openNode("sender", senderConfig(x, "shm", effects.Addr{}))
		pages := mustReserve(x, s, 2)
		for _, key := range []string{"", "llama@1@0@bfloat16", "llama@1@0@1A2B@bfloat16", "llama@1@0@1a2b@fp99"} {
			_, err := s.Sender().Put(within(x), runtime.Put{Peer: runtime.Peer{Host: "127.0.0.1", InitPort: 7300,
				AllocPort: 7301},
				Keys: []string{"llama@1@0@1a2b@bfloat16", key}, Pages: pages})
			x.addError(err)
		}
		mustRelease(x, pages)
	}},
	{"other calls that are wrong", effects.Invalid, func(x *transcript) {
		cfg := senderConfig(x, "shm", effects.Addr{})
		cfg.DrainTimeout = 1
		s, r := x.openNode("sender", cfg), x.openNode("receiver", receiverConfig(x, "shm", nil))
		_, err := s.Sender().Reserve(within(x), 0)
		x.addError(err)
		_, err = r.Receiver().Get(within(x), runtime.Get{})
		x.addError(err)
		_, err = r.Receiver().Get(within(x), runtime.Get{Keys: []string{"llama"}})
		x.addError(err)
		_, err = r.Receiver().Contains(within(x), []string{"llama"})
		x.addError(err)
		_, err = r.Receiver().Fetch(within(x), runtime.Fetch{Keys: keysOf("told", 1)})
		x.addError(err)
		_, err = r.Receiver().Fetch(within(x), runtime.Fetch{Keys: keysOf("told", 1), ScatterDevice: func(context.Context, int,
			[]runtime.DevicePage) error {
			return nil
		}})
		x.addError(err)
		x.addError(r.Receiver().Abandon(""))
		x.addError(x.openNode("other", senderConfig(x, "shm", effects.Addr{})).Sender().WithdrawPut(x.mustPutChunk(s, r)))
		pages := mustReserve(x, s, 1)
		_, err = pages.Bytes(1)
		x.addError(err)
		x.addError(s.Close(within(x)))
		mustRelease(x, pages)
	}},
	{"a node that cannot open", effects.Invalid, func(x *transcript) {
		for _, cfg := range []*config.Config{nil, parse(x, "sender", "shm", 8, "pd_skip_proxy_notification: true\n")} {
			_, err := runtime.NewReceiver(x.Context(), cfg)
			x.addError(err)
		}
		noLayout := senderConfig(x, "shm", effects.Addr{})
		noLayout.Pages = 0
		control, plane := runtime.WithControl(zmq.Config{}.Opener()), runtime.WithPlane(shm.Name, shm.Open)
		for _, o := range []struct {
			cfg  *config.Config
			opts []runtime.Option
		}{
			{noLayout, []runtime.Option{control, plane}},
			{senderConfig(x, "shm", effects.Addr{}), []runtime.Option{plane}},
			{senderConfig(x, "shm", effects.Addr{}), []runtime.Option{control}},
			{senderConfig(x, "tcp", effects.Addr{}), []runtime.Option{control, plane}},
			{senderConfig(x, "auto", effects.Addr{}), []runtime.Option{control, plane, plane}},
			{senderConfig(x, "auto", effects.Addr{}), []runtime.Option{control, runtime.WithPlane("ours", shm.Open)}},
			{senderConfig(x, "auto", effects.Addr{}), []runtime.Option{control, runtime.WithPlane("ours", nil)}},
			{senderConfig(x, "hccl", effects.Addr{}), []runtime.Option{control, plane}},
			{receiverConfig(x, "shm", nil), []runtime.Option{control, plane, runtime.WithRank(3)}},
			{receiverConfig(x, "shm", nil), []runtime.Option{control, plane, runtime.WithRank(-1)}},
			{receiverConfig(x, "shm", nil), []runtime.Option{control, plane, runtime.WithLogger(nil)}},
		} {
			_, err := runtime.Open(x.Context(), o.cfg, o.opts...)
			x.addError(err)
		}
	}},
	{"a port that is taken", effects.Refused, func(x *transcript) {
		first := x.openNode("receiver", receiverConfig(x, "shm", nil))
		at := peerOf(first)
		_, err := x.tryOpenNode("second", receiverConfig(x, "shm", &at))
		x.addError(err)
	}},
	{"calls of the other role", effects.Unsupported, func(x *transcript) {
		s, r := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("receiver", receiverConfig(x, "shm", nil))
		_, err := r.Sender().Reserve(within(x), 1)
		x.addError(err)
		_, err = s.Receiver().Get(within(x), runtime.Get{Keys: keysOf("told", 1)})
		x.addError(err)
		pages := mustReserve(x, s, 1)
		_, err = pages.DevicePage(0)
		x.addError(err)
		mustRelease(x, pages)
	}},
	{"what can never fit", effects.TooLarge, func(x *transcript) {
		s := x.openNode("sender", senderConfig(x, "shm", effects.Addr{}))
		_, err := s.Sender().Reserve(within(x), 9)
		x.addError(err)
		pages := mustReserve(x, s, 1)
		put := runtime.Put{Peer: runtime.Peer{Host: "127.0.0.1", InitPort: 7300, AllocPort: 7301}, Keys: keysOf("told", 1),
			Pages: pages}
		put.Request = strings.Repeat("r", 129)
		_, err = s.Sender().Put(within(x), put)
		x.addError(err)
		put.Request, put.Keys = "r", []string{strings.Repeat("m", 600) + "@1@0@1a2b@bfloat16"}
		_, err = s.Sender().Put(within(x), put)
		x.addError(err)
		mustRelease(x, pages)
	}},
	{"more commands than a node takes", effects.TooMany, func(x *transcript) {
		cfg := receiverConfig(x, "shm", nil)
		cfg.Bounds.Commands = 1
		r := x.openNode("receiver", cfg)
		// It waits until the node is closed.
		if _, err := r.Receiver().Submit(&engine.Get{Keys: [][]byte{[]byte(keysOf("told", 1)[0])},
			Wait: effects.Duration(limit)}); err != nil {
			x.Fatal(err)
		}
		_, err := r.Receiver().Get(within(x), runtime.Get{Keys: keysOf("told", 1)})
		x.addError(err)
	}},
	{"a put that is cancelled", effects.Cancelled, func(x *transcript) {
		s := x.openNode("sender", senderConfig(x, "shm", effects.Addr{}))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		pages, silent := mustReserve(x, s, 1), newSilentPeer(x.T).Peer
		x.setReceiver(silent)
		_, err := s.Sender().Put(ctx, runtime.Put{Peer: silent, Keys: keysOf("told", 1), Pages: pages})
		x.addError(err)
		mustRelease(x, pages)
	}},
	{"a fetch that the engine fails", effects.Faulted, func(x *transcript) {
		s, r := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("receiver", receiverConfig(x, "shm", nil))
		x.mustPutChunk(s, r)
		_, err := r.Receiver().Fetch(within(x), runtime.Fetch{Request: "r", Keys: keysOf("told", 1),
			Scatter: func(context.Context, int, [][]byte) error { return errors.New("no stream is free") }})
		x.addError(err)
	}},
	{"a get of what is not here", effects.NotFound, func(x *transcript) {
		r := x.openNode("receiver", receiverConfig(x, "shm", nil))
		_, err := r.Receiver().Get(within(x), runtime.Get{Request: "r", Keys: keysOf("told", 2)})
		x.addError(err)
		_, err = r.Receiver().Fetch(within(x), runtime.Fetch{Request: "r", Keys: keysOf("told", 2), Scatter: failingScatter(x.T),
			Timeout: time.Millisecond})
		x.addError(err)
	}},
	{"pages that are released twice", effects.NotFound, func(x *transcript) {
		s := x.openNode("sender", senderConfig(x, "shm", effects.Addr{}))
		pages := mustReserve(x, s, 1)
		mustRelease(x, pages)
		x.addError(pages.Release(within(x)))
	}},
	{"a get of what was kept in vain", effects.Lapsed, func(x *transcript) {
		cfg := receiverConfig(x, "shm", nil)
		cfg.Machine.ClaimTTL = 50 * effects.Millisecond
		s, r := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("receiver", cfg)
		x.mustPutChunk(s, r)
		waitFor(x, r, "the end of what was kept", func(s rank.Stats) bool { return s.Entries == 0 })
		_, err := r.Receiver().Get(within(x), runtime.Get{Request: "r", Keys: keysOf("told", 1)})
		x.addError(err)
	}},
	{"a get whose sender failed", effects.SenderFailed, func(x *transcript) {
		s, r := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("receiver", receiverConfig(x, "shm", nil))
		x.mustPutChunk(s, r)
		if err := s.Sender().EndRequest(within(x), runtime.RequestEnd{Request: "r", Peer: peerOf(r), Code: effects.NoMemory,
			Reason: "the pool of the prefill is full"}); err != nil {
			x.Fatal(err)
		}
		got, err := r.Receiver().Get(within(x), runtime.Get{Request: "r", Keys: keysOf("told", 2), Timeout: limit})
		x.addError(err)
		mustRelease(x, got)
	}},
	{"a get of chunks that have another name", effects.NotSent, func(x *transcript) {
		s, r := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("receiver", receiverConfig(x, "shm", nil))
		x.mustPutChunk(s, r)
		if err := s.Sender().EndRequest(within(x), runtime.RequestEnd{Request: "r", Peer: peerOf(r)}); err != nil {
			x.Fatal(err)
		}
		_, err := r.Receiver().Get(within(x), runtime.Get{Request: "r", Keys: keysOf("model-b", 1), Timeout: limit})
		x.addError(err)
		x.addError(s.Sender().EndRequest(within(x), runtime.RequestEnd{Request: "other", Peer: peerOf(r)}))
	}},
	{"a node that drains", effects.Draining, func(x *transcript) {
		s := x.openNode("sender", senderConfig(x, "shm", effects.Addr{}))
		if _, err := s.Drain(within(x)); err != nil {
			x.Fatal(err)
		}
		_, err := s.Sender().Reserve(within(x), 1)
		x.addError(err)
	}},
	{"a close that something holds up", effects.Expired, func(x *transcript) {
		cfg, gate := senderConfig(x, "shm", effects.Addr{}), make(chan struct{})
		cfg.DrainTimeout = 1
		n := slowToClose(x.T, cfg, gate)
		ctx, cancel := context.WithTimeout(context.Background(), briefly)
		defer cancel()
		x.addError(n.Close(ctx))
		close(gate)
		mustClose(x, n)
	}},
	{"a pool that no host has", effects.NoMemory, func(x *transcript) {
		cfg := x.senderWith("chunk_size: 16", "chunk_size: 65536") // So that it is not its tables that do not fit.
		cfg.BufferBytes = 4 << 40
		if err := cfg.SetLayout(cfg.Layout); err != nil {
			x.Fatal(err)
		}
		_, err := x.tryOpenNode("sender", cfg)
		var short *runtime.Error
		if !errors.As(err, &short) {
			x.Fatal(err)
		}
		told := *short
		told.Cause = errors.New("what is asked for, what can be had, and which bound says so") // It differs by host.
		x.addError(&told)
	}},
	{"a node that was closed", effects.Closed, func(x *transcript) {
		s := x.openNode("sender", senderConfig(x, "shm", effects.Addr{}))
		mustClose(x, s)
		_, err := s.Sender().Reserve(within(x), 1)
		x.addError(err)
	}},
	{"a rank that failed alone", effects.Failed, func(x *transcript) {
		n, d := openAlone(x.T, senderConfig(x, "shm", effects.Addr{}), "", io.Discard)
		d.completesTwice()
		<-n.Failed()
		var why *runtime.Failure
		if errors.As(n.Err(), &why) {
			x.replaceText(why.Location, "rank.(*Rank).Step (rank.go:1)")
			x.replaceText(why.Node, "ss00ssss")
		}
		_, err := n.Sender().Reserve(within(x), 1)
		x.addError(err)
		x.addError(n.Err())
		closeFailed(x.T, n)
	}},
	{"a put after the last one", effects.Ended, func(x *transcript) {
		s, r := x.openNode("sender", senderConfig(x, "shm", effects.Addr{})), x.openNode("receiver", receiverConfig(x, "shm", nil))
		pages := mustReserve(x, s, 1)
		put := runtime.Put{Peer: peerOf(r), Request: "r", Keys: keysOf("told", 1), Pages: pages, Last: true}
		if _, err := s.Sender().Put(within(x), put); err != nil {
			x.Fatal(err)
		}
		_, err := s.Sender().Put(within(x), put)
		x.addError(err)
		mustRelease(x, pages)
	}},
	{"a full pool of one's own", effects.NoMemory, func(x *transcript) {
		cfg := senderConfig(x, "shm", effects.Addr{})
		cfg.Machine.PutTimeout = effects.Duration(briefly)
		s := x.openNode("sender", cfg)
		all := mustReserve(x, s, 8)
		_, err := s.Sender().Reserve(within(x), 1)
		x.addError(err)
		mustRelease(x, all)
	}},
}
