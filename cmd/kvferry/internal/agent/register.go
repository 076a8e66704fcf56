package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// Registered is the part of a request that only nodes with registered engine blocks use. Key i names the content of
// block i; the content differs for each layer and each head of the block.
type Registered struct {
	Blocks   []uint32 `json:"blocks"`
	First    int      `json:"first,omitempty"` // the position of the first block in the request
	Transfer string   `json:"transfer,omitempty"`
	// Producers are, in a register, the producer's ranks that have a part of the blocks. Ranks is the number of all
	// ranks of the producer.
	Producers []Peer `json:"producers,omitempty"`
	Ranks     int    `json:"ranks,omitempty"`
}

// finishRequest writes the content of the blocks and lends the blocks to consumers. The response is written when the
// blocks are returned.
func (s *server) finishRequest(ctx context.Context, req *Request) Response {
	x := req.Registered
	if x == nil || len(x.Blocks) != len(req.Keys) {
		return Response{Code: effects.Invalid.String(), Error: "finish: registered.blocks must have one block for each key"}
	}
	if err := s.forEachCell(req, FillContent); err != nil {
		return responseOf(err)
	}
	ctx, done := s.trackCancel(ctx, req)
	defer done()
	begin := time.Now()
	l, err := s.node.Producer().LendBlocks(ctx, runtime.FinishedRequest{Request: req.Request, Transfer: x.Transfer,
		Blocks: []runtime.Blocks{{First: uint64(x.First), Logical: x.Blocks}},
		Lease:  time.Duration(req.WaitMS) * time.Millisecond})
	if err != nil {
		return responseOf(err)
	}
	out := <-l.Done()
	<-l.Returned()
	resp := responseOf(out.Err)
	resp.Sent, resp.Bytes = out.Pages, int64(out.Pages)*int64(s.node.PageBytes())
	resp.MicrosTransfer = time.Since(begin).Microseconds()
	return resp
}

// registerBlocks has the producer write the blocks and verifies every byte if the transfer succeeded. The response is
// written when the blocks are returned.
func (s *server) registerBlocks(ctx context.Context, req *Request) Response {
	x := req.Registered
	if x == nil || len(x.Blocks) != len(req.Keys) {
		return Response{Code: effects.Invalid.String(), Error: "register: registered.blocks must have one block for each key"}
	}
	if err := s.forEachCell(req, func(b []byte, _ string) { clear(b) }); err != nil {
		return responseOf(err) // Bytes that the producer does not write must fail the check, so the blocks start out clear.
	}
	r := runtime.Registration{Request: req.Request, Transfer: x.Transfer, Ranks: x.Ranks, Stages: 1,
		Blocks:  []runtime.Blocks{{First: uint64(x.First), Logical: x.Blocks}},
		Timeout: time.Duration(req.WaitMS) * time.Millisecond}
	for _, p := range x.Producers {
		r.Producers = append(r.Producers, runtime.ProducerPeer{Host: p.Host, InitPort: p.InitPort, Port: p.AllocPort})
	}
	ctx, done := s.trackCancel(ctx, req)
	defer done()
	begin := time.Now()
	reception, err := s.node.Consumer().Register(ctx, r)
	if err != nil {
		return responseOf(err)
	}
	out := <-reception.Done()
	<-reception.Returned()
	resp := responseOf(out.Err)
	resp.MicrosTransfer = time.Since(begin).Microseconds()
	if out.Err != nil {
		return resp
	}
	if err := s.forEachCell(req, func(b []byte, key string) {
		resp.Bytes += int64(len(b))
		resp.Wrong += int64(CountWrong(b, key))
	}); err != nil {
		return responseOf(err)
	}
	resp.Hits = out.Pages
	return resp
}

// forEachCell calls visit for each cell of the request's blocks that this rank has, with the name of the cell's
// content.
func (s *server) forEachCell(req *Request, visit func(b []byte, key string)) error {
	g := s.node.Geometry()
	if g == nil {
		_, err := s.node.BlockBytes(0, 0)
		return err // BlockBytes reports why there are no blocks.
	}
	first := int(uint64(g.Rank) * uint64(g.Heads) / uint64(g.Ranks))
	for i, block := range req.Registered.Blocks {
		for region, layer := range g.Layers {
			b, err := s.node.BlockBytes(region, int(block))
			if err != nil {
				return err
			}
			size := len(b) / int(g.SharesPerBlock())
			for share := range int(g.SharesPerBlock()) {
				visit(b[share*size:(share+1)*size],
					fmt.Sprintf("%s/%d/%d", req.Keys[i], layer.Number, first+share*int(g.CellHeads)))
			}
		}
	}
	return nil
}

// trackCancel makes a request cancellable by "cancel". It returns the request's context and a function that the caller
// must call when the request ends.
func (s *server) trackCancel(ctx context.Context, req *Request) (cancellable context.Context, done func()) {
	cancellable, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancels == nil {
		s.cancels = map[string]context.CancelFunc{}
	}
	s.cancels[req.Request] = cancel
	return cancellable, func() {
		s.mu.Lock()
		delete(s.cancels, req.Request)
		s.mu.Unlock()
		cancel()
	}
}

// cancelRequest cancels the finish or register of a request that is in progress, as an engine does that no longer needs
// the result. It fails with not-found if no such operation is in progress.
func (s *server) cancelRequest(req *Request) Response {
	s.mu.Lock()
	cancelFunc := s.cancels[req.Request]
	s.mu.Unlock()
	if cancelFunc == nil {
		return Response{Code: effects.NotFound.String(), Error: "cancel: no register or finish of this request is in progress"}
	}
	cancelFunc()
	return Response{Code: effects.OK.String()}
}

// abortRequest notifies consumers that the blocks of a request will not arrive.
func (s *server) abortRequest(req *Request) Response {
	transfer := ""
	if req.Registered != nil {
		transfer = req.Registered.Transfer
	}
	return responseOf(s.node.Producer().AbortRequest(req.Request, transfer))
}
