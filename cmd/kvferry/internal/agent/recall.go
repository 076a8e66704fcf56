package agent

import (
	"context"
	"errors"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// recallChunks reads the chunks of the keys that a peer still has and verifies every byte. The pages are cleared first,
// so that a byte that was not read fails the check.
func (s *server) recallChunks(ctx context.Context, req *Request) Response {
	if req.Peer == nil || len(req.Keys) == 0 {
		return Response{Code: effects.Invalid.String(),
			Error: "recall: peer or keys are missing; give host, init_port, alloc_port, query_port and at least one key"}
	}
	if req.WaitMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.WaitMS)*time.Millisecond)
		defer cancel()
	}
	pages, err := s.node.Sender().Reserve(ctx, len(req.Keys))
	if err != nil {
		return responseOf(err)
	}
	for i := 0; i < pages.Len() && err == nil; i++ {
		err = s.engine.FillPage(pages, i, s.node.PageBytes(), clearBytes)
	}
	if err != nil {
		return responseOf(errors.Join(err, pages.Release(ctx)))
	}
	begin := time.Now()
	res, err := s.node.Sender().Recall(ctx, runtime.Recall{
		Peer: runtime.RecallPeer{
			Host: req.Peer.Host, InitPort: req.Peer.InitPort, AllocPort: req.Peer.AllocPort, QueryPort: req.Peer.QueryPort,
		},
		Request: req.Request, Keys: req.Keys, Pages: pages,
	})
	resp := responseOf(err)
	resp.Hits, resp.MicrosTransfer = res.Hits, time.Since(begin).Microseconds()
	var checkErr error
	for i := 0; i < res.Hits && checkErr == nil; i++ {
		checkErr = s.engine.ReadPage(pages, i, func(b []byte) { s.verifyChunk(&resp, req, i, b[:res.Lengths[i]]) })
	}
	if checkErr = errors.Join(checkErr, pages.Release(context.WithoutCancel(ctx))); checkErr != nil && err == nil {
		return responseOf(checkErr)
	}
	return resp
}

func clearBytes(b []byte) { clear(b) }
