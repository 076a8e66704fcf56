package agent

import (
	"context"
	"errors"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// storeChunks writes the content of the keys into reserved pages and stores them in the cache, from which peers may
// read them.
func (s *server) storeChunks(ctx context.Context, req *Request) Response {
	sharing := s.node.Sharing()
	pages, err := sharing.Reserve(ctx, len(req.Keys))
	if err != nil {
		return responseOf(err)
	}
	for i := 0; i < pages.Len() && err == nil; i++ {
		err = s.engine.FillPage(pages, i, s.node.PageBytes(), func(b []byte) { FillContent(b, req.Keys[i]) })
	}
	if err == nil {
		err = sharing.Store(ctx, req.Keys, pages, 0)
	}
	return responseOf(errors.Join(err, pages.Release(context.WithoutCancel(ctx))))
}

// bringChunks gets the longest prefix of the keys that this node or its peers have, and verifies every byte of the
// chunks.
func (s *server) bringChunks(ctx context.Context, req *Request) Response {
	g := runtime.SharedGet{Request: req.Request, Keys: req.Keys, Timeout: time.Duration(req.WaitMS) * time.Millisecond}
	if req.Peer != nil {
		g.From = runtime.SharingPeer{Host: req.Peer.Host, InitPort: req.Peer.InitPort}
	}
	begin := time.Now()
	if req.Fetch {
		return s.fetchShared(ctx, req, &g)
	}
	pages, err := s.node.Sharing().Get(ctx, g)
	return s.verifyPages(ctx, req, pages, err, time.Since(begin))
}

// fetchShared is a bring with Fetch set: the chunks stay with the peers until the engine fetches them. If the fetch
// fails, the deferred chunks of the request are abandoned.
func (s *server) fetchShared(ctx context.Context, req *Request, g *runtime.SharedGet) Response {
	var checked Response
	var destination runtime.Fetch
	s.engine.SetDestination(&destination, func(key int, chunk []byte) { s.verifyChunk(&checked, req, key, chunk) })
	begin := time.Now()
	hits, err := s.node.Sharing().Fetch(ctx, runtime.SharedFetch{SharedGet: *g, Scatter: destination.Scatter,
		ScatterDevice: destination.ScatterDevice})
	if code := runtime.CodeOf(err); code != effects.OK && code != effects.NotFound {
		err = errors.Join(err, s.node.Receiver().Abandon(g.Request))
	}
	resp := responseOf(err)
	resp.Hits, resp.Bytes, resp.Wrong, resp.MicrosTransfer = hits, checked.Bytes, checked.Wrong,
		time.Since(begin).Microseconds()
	return resp
}
