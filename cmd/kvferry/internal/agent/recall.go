package agent

import (
	"context"
	"errors"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// recall reads the chunks of the keys that a peer still has and verifies every byte. The pages are cleared first, so
// that a byte that was not read fails the check.
func (s *server) recall(ctx context.Context, req *Request) Response {
	if req.Peer == nil || len(req.Keys) == 0 {
		return Response{Code: effects.Invalid.String(),
			Error: "recall: peer or keys are missing; give host, three ports and at least one chunk"}
	}
	if req.WaitMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.WaitMS)*time.Millisecond)
		defer cancel()
	}
	pages, err := s.node.Sender().Reserve(ctx, len(req.Keys))
	if err != nil {
		return ended(err)
	}
	for i := 0; i < pages.Len() && err == nil; i++ {
		err = s.engine.Fill(pages, i, s.node.PageBytes(), clearBytes)
	}
	if err != nil {
		return ended(errors.Join(err, pages.Release(ctx)))
	}
	begin := time.Now()
	res, err := s.node.Sender().Recall(ctx, runtime.Recall{
		Peer: runtime.RecallPeer{
			Host: req.Peer.Host, InitPort: req.Peer.InitPort, AllocPort: req.Peer.AllocPort, QueryPort: req.Peer.QueryPort,
		},
		Request: req.Request, Keys: req.Keys, Pages: pages,
	})
	resp := ended(err)
	resp.Hits, resp.MicrosTransfer = res.Hits, time.Since(begin).Microseconds()
	var seen error
	for i := 0; i < res.Hits && seen == nil; i++ {
		seen = s.engine.Look(pages, i, func(b []byte) { s.verify(&resp, req, i, b[:res.Lengths[i]]) })
	}
	if seen = errors.Join(seen, pages.Release(context.WithoutCancel(ctx))); seen != nil && err == nil {
		return ended(seen)
	}
	return resp
}

func clearBytes(b []byte) { clear(b) }
