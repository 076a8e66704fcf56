//go:build cgo && linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/internal/watch"
)

// An order is a line of JSON to a process. Orders run in parallel.
type order struct {
	ID   int
	Op   string // "open", "put", "reclaim", "get", "fetch", "hits", "await", "stats", "control" or "close"
	Node int    // which node of the process

	Spec     *nodeSpec     // of open
	Peer     runtime.Peer  // of put
	Keys     []string      // of put, get, fetch, hits
	Timeout  time.Duration // of put and fetch; as configured if zero
	Argument string        // of await: what is to be; of control: the command
}

// A reply is the reply to an order.
type reply struct {
	ID    int
	Peer  runtime.Peer
	Code  effects.Code
	Text  string // of an error; what the software NPU answers
	Hits  int    // chunks that were there, or that the engine took
	Wrong int    // chunks that existed with wrong bytes
	Stats rank.Stats
}

// statConditions are the conditions that an order can wait for.
var statConditions = map[string]func(rank.Stats) bool{
	"granted": func(s rank.Stats) bool { return s.PagesGranted > 0 },
	"expired": func(s rank.Stats) bool { return s.PagesGranted == 0 }, // What was granted may be in quarantine.
	"quiet":   func(s rank.Stats) bool { return s.Grants+s.PendingRequests+s.PagesGranted+s.PagesQuarantined == 0 },
	"unlent":  func(s rank.Stats) bool { return s.PagesLeased+s.PagesQuarantined == 0 },
	"nothing": func(s rank.Stats) bool {
		return s.Offers+s.Locations+s.Fetches+s.Staged+s.Puts+s.PagesLeased+s.PagesGranted+s.PagesQuarantined == 0
	},
}

// awaitCondition waits for a condition between two steps of the machine.
func (n *testNode) awaitCondition(ctx context.Context, what string) error {
	holds := statConditions[what]
	stepped := make(chan struct{}, 1)
	watch.ObserveNode(n.node, func(effects.Event) {
		select {
		case stepped <- struct{}{}:
		default: // A signal is pending already.
		}
	}, func(effects.Effect) {})
	for {
		s := n.node.Stats()
		if holds(s) {
			return nil
		}
		select {
		case <-stepped:
		case <-ctx.Done():
			return fmt.Errorf("%q never came: %+v", what, s)
		}
	}
}

// putChunks fills pages on the device and puts them. The pages stay reserved until reclaimPages.
func (n *testNode) putChunks(ctx context.Context, o *order) (w reply, err error) {
	pages, err := n.node.Sender().Reserve(ctx, len(o.Keys))
	if err != nil {
		return reply{Code: runtime.CodeOf(err), Text: err.Error()}, nil
	}
	for i, key := range o.Keys {
		at, err := pages.DevicePage(i)
		if err == nil {
			err = n.engine.writePage(at, chunkContent(key, int(at.Bytes)))
		}
		if err != nil {
			return w, errors.Join(err, pages.Release(ctx))
		}
	}
	res, err := n.node.Sender().Put(ctx, runtime.Put{Peer: o.Peer, Request: "r", Keys: o.Keys, Pages: pages,
		Timeout: o.Timeout})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pages, n.puts = append(n.pages, pages), append(n.puts, res)
	return errorReply(err), nil
}

// reclaimPages waits until all pages are returned, by expiry if necessary, and reuses the pages.
func (n *testNode) reclaimPages(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, p := range n.pages {
		select {
		case <-n.puts[i].Returned():
		case <-ctx.Done():
			return fmt.Errorf("the pages of a put are still in use: %+v", n.node.Stats())
		}
		var errs []error
		for j := range p.Len() {
			at, err := p.DevicePage(j)
			if err == nil {
				err = n.engine.overwritePage(at)
			}
			errs = append(errs, err)
		}
		if err := errors.Join(append(errs, p.Release(ctx))...); err != nil {
			n.pages, n.puts = n.pages[i+1:], n.puts[i+1:]
			return err
		}
	}
	n.pages, n.puts = nil, nil
	return nil
}

// getChunks gets each key by itself, and compares the chunks that exist.
func (n *testNode) getChunks(ctx context.Context, keys []string) (w reply, err error) {
	for _, key := range keys {
		p, err := n.node.Receiver().Get(ctx, runtime.Get{Request: "r", Keys: []string{key}})
		if err != nil && runtime.CodeOf(err) != effects.NotFound {
			return w, err
		}
		if p.Len() == 0 {
			continue
		}
		w.Hits++
		at, err := p.DevicePage(0)
		var b []byte
		if err == nil {
			b, err = n.engine.readPage(at)
		}
		if err != nil {
			return w, errors.Join(err, p.Release(ctx))
		}
		if !isContent(b, key) {
			w.Wrong++
		}
		if err := p.Release(ctx); err != nil {
			return w, err
		}
	}
	return w, nil
}

// fetchChunks makes the device copy chunks of their request to the engine's own memory, as far as possible, and
// compares them.
func (n *testNode) fetchChunks(ctx context.Context, o *order) (w reply, err error) {
	var own *acl.Memory
	if err := n.engine.ctx.Do(func(t *acl.Thread) (err error) {
		own, err = t.AllocDevice(uint64(len(o.Keys)*pageBytes), acl.HugeFirst)
		return err
	}); err != nil {
		return w, err
	}
	to := func(i int) acl.Range { return own.Range(uint64(i*pageBytes), pageBytes) }
	taken, err := n.node.Receiver().Fetch(ctx, runtime.Fetch{Request: "r", Keys: o.Keys, Timeout: o.Timeout,
		ScatterDevice: n.device.ScatterFunc(func(t *acl.Thread, s *acl.Stream, first int, chunks []acl.Range) error {
			for i, chunk := range chunks {
				if err := s.Copy(t, to(first+i), chunk); err != nil {
					return err
				}
			}
			return nil
		})})
	w = errorReply(err)
	w.Hits = taken
	for i := range taken {
		b, err := n.engine.readRange(to(i))
		if err != nil {
			return w, errors.Join(err, n.engine.ctx.Do(own.Close))
		}
		if !isContent(b, o.Keys[i]) {
			w.Wrong++
		}
	}
	return w, n.engine.ctx.Do(own.Close)
}

func errorReply(err error) reply {
	w := reply{Code: runtime.CodeOf(err)}
	if err != nil {
		w.Text = err.Error()
	}
	return w
}
