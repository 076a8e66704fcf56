package agent

import (
	"context"
	"errors"
	"time"

	"github.com/kvferry/kvferry/runtime"
)

// store makes the content of the keys and leaves it to the cache, where peers may read it.
func (s *server) store(ctx context.Context, req *Request) Response {
	sharing := s.node.Sharing()
	pages, err := sharing.Reserve(ctx, len(req.Keys))
	if err != nil {
		return ended(err)
	}
	for i := 0; i < pages.Len() && err == nil; i++ {
		err = s.engine.Fill(pages, i, s.node.PageBytes(), func(b []byte) { Fill(b, req.Keys[i]) })
	}
	if err == nil {
		err = sharing.Store(ctx, req.Keys, pages, 0)
	}
	return ended(errors.Join(err, pages.Release(context.WithoutCancel(ctx))))
}

// bring gets the prefix that is here or that peers have, and checks every byte of it.
func (s *server) bring(ctx context.Context, req *Request) Response {
	g := runtime.SharedGet{Request: req.Request, Keys: req.Keys, Patience: time.Duration(req.WaitMS) * time.Millisecond}
	if req.Peer != nil {
		g.From = runtime.SharingPeer{Host: req.Peer.Host, InitPort: req.Peer.InitPort}
	}
	begin := time.Now()
	pages, err := s.node.Sharing().Get(ctx, g)
	return s.look(ctx, req, pages, err, time.Since(begin))
}
