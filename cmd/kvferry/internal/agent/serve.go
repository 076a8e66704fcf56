package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/plain"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

const (
	lineBytesMax = 1 << 20
	// inProgressMax is the maximum number of requests in progress. Further requests wait until a request ends.
	inProgressMax = 64
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// A Node is the node that an agent serves, together with the engine that the agent plays for it.
type Node struct {
	*runtime.Node
	Engine Engine
	Links  func() *Links // counts the node's links for Stats; nil if the node's plane has no links to count
}

// Refuse writes the first response for a node that could not be opened. The response carries the error's code and text
// in place of the "ok" that reports that the node serves.
func Refuse(out io.Writer, err error) error { return json.NewEncoder(out).Encode(ended(err)) }

// Serve answers the requests that it reads from in until in ends or ctx is cancelled. At the end of in, Serve waits for
// the requests in progress. When ctx is cancelled, the requests in progress are cancelled too, and their responses are
// written before Serve returns. A blocked read of in outlives Serve in that case, so a caller that cancels ctx and
// continues to run must close in. Serve returns the error of reading in, the first error of writing to out, or the
// first error of releasing pages after the response was written.
func Serve(ctx context.Context, on Node, in io.Reader, out io.Writer) error {
	s := server{node: on.Node, engine: on.Engine, links: on.Links, out: json.NewEncoder(out)}
	s.answer(Response{Code: effects.OK.String(), Stats: s.stats()})
	lines := make(chan []byte)
	readErr := make(chan error, 1)
	go func() { readErr <- readLines(ctx, in, lines) }()
	slots := make(chan struct{}, inProgressMax)
	var err error
	for serving := true; serving; {
		select {
		case line := <-lines:
			slots <- struct{}{}
			s.working.Go(func() {
				defer func() { <-slots }()
				s.answer(s.carryOutLine(ctx, line))
			})
		case err = <-readErr:
			serving = false
		case <-ctx.Done():
			serving = false
		}
	}
	s.working.Wait()
	return errors.Join(err, s.firstError())
}

func readLines(ctx context.Context, in io.Reader, lines chan<- []byte) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, lineBytesMax)
	for scanner.Scan() {
		select {
		case lines <- slices.Clone(scanner.Bytes()):
		case <-ctx.Done():
			return nil
		}
	}
	if err := scanner.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("requests: %w", err)
	}
	return nil
}

func (s *server) carryOutLine(ctx context.Context, line []byte) Response {
	var req Request
	strict := json.NewDecoder(bytes.NewReader(line))
	strict.DisallowUnknownFields() // A misspelt field must be an error, or it would be ignored silently.
	if err := strict.Decode(&req); err != nil {
		remedy := "write one JSON object a line"
		if json.Valid(line) { // The line is JSON with a wrong field, so the response can still carry the request's ID.
			remedy = "docs/first-hour.md shows requests"
			_ = json.Unmarshal(line, &struct{ ID *uint64 }{&req.ID})
		}
		return Response{ID: req.ID, Code: effects.Malformed.String(),
			Error: fmt.Sprintf("not a request: %s; %s", plain.Text(err.Error()), remedy)}
	}
	resp := s.carryOut(ctx, &req)
	resp.ID = req.ID
	return resp
}

type server struct {
	node    *runtime.Node
	engine  Engine
	links   func() *Links
	working sync.WaitGroup

	mu    sync.Mutex
	takes map[string]context.CancelFunc // by request: cancels a registration or a loan of blocks in progress
	out   *json.Encoder
	err   error // the first error that no response reports
}

func (s *server) answer(r Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.Encode(r); err != nil && s.err == nil {
		s.err = err
	}
}

func (s *server) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *server) firstError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *server) carryOut(ctx context.Context, req *Request) Response {
	switch req.Op {
	case "put":
		return s.put(ctx, req)
	case "prefill":
		return s.prefill(ctx, req)
	case "recall":
		return s.recall(ctx, req)
	case "get":
		return s.get(ctx, req)
	case "fetch":
		return s.fetch(ctx, req)
	case "store":
		return s.store(ctx, req)
	case "bring":
		return s.bring(ctx, req)
	case "lookup":
		local, remote, err := s.node.Sharing().Lookup(ctx, req.Keys)
		resp := ended(err)
		resp.Hits, resp.Elsewhere = local, remote
		return resp
	case "finish":
		return s.finish(ctx, req)
	case "register":
		return s.register(ctx, req)
	case "cancel":
		return s.cancel(req)
	case "abort":
		return s.abort(req)
	case "abandon":
		return ended(s.node.Receiver().Abandon(req.Request))
	case "stats":
		return Response{Code: effects.OK.String(), Stats: s.stats()}
	case "drain":
		_, err := s.node.Drain(ctx)
		return ended(err)
	}
	return Response{Code: effects.Invalid.String(),
		Error: fmt.Sprintf("op is %q; use put, prefill, recall, get, fetch, store, bring, lookup, finish, "+
			"register, cancel, abort, abandon, stats or drain",
			req.Op)}
}

func (s *server) stats() *Stats {
	stats := statsOf(s.node)
	if s.links != nil {
		stats.Links = s.links()
	}
	return stats
}

func ended(err error) Response {
	r := Response{Code: runtime.CodeOf(err).String()}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// put writes the content of the keys into reserved pages and pushes them to the peer as one batch.
func (s *server) put(ctx context.Context, req *Request) Response {
	if req.Peer == nil {
		return Response{Code: effects.Invalid.String(), Error: "put: peer is missing; give host, init_port and alloc_port"}
	}
	if len(req.Keys) == 0 {
		return Response{Code: effects.Invalid.String(), Error: "put: keys is empty; name at least one chunk"}
	}
	if req.WaitMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.WaitMS)*time.Millisecond)
		defer cancel()
	}
	sender := s.node.Sender()
	pages, err := sender.Reserve(ctx, len(req.Keys))
	if err != nil {
		return ended(err)
	}
	resp, res := s.putPages(ctx, req, pages)
	// The pages are released whatever the outcome of the request: at once, or as soon as no transfer reads them any
	// more. The node bounds how long that takes.
	release := context.WithoutCancel(ctx)
	select {
	case <-res.Returned():
		if err := pages.Release(release); err != nil && resp.Error == "" {
			return ended(err)
		}
	default:
		s.working.Go(func() {
			if err := pages.Release(release); err != nil {
				s.fails(err)
			}
		})
	}
	return resp
}

func (s *server) putPages(ctx context.Context, req *Request, pages *runtime.Pages) (Response, runtime.PutResult) {
	total := int64(0)
	for i, key := range req.Keys {
		n := s.bytesOf(req, i)
		if err := s.engine.Fill(pages, i, n, func(b []byte) { Fill(b, key) }); err != nil {
			return ended(err), runtime.PutResult{}
		}
		total += int64(n)
	}
	peer := runtime.Peer{Host: req.Peer.Host, InitPort: req.Peer.InitPort, AllocPort: req.Peer.AllocPort}
	begin := time.Now()
	res, err := s.node.Sender().Put(ctx, runtime.Put{Peer: peer, Request: req.Request, Keys: req.Keys, Pages: pages,
		LastChunkTokens: req.LastTokens, Last: req.Last})
	resp := ended(err)
	resp.Sent, resp.Skipped, resp.MicrosTransfer = res.Sent, res.Skipped, time.Since(begin).Microseconds()
	if err == nil {
		// The result does not say which chunks were skipped. Only the last chunk can be shorter than a page.
		resp.Bytes = max(0, total-int64(res.Skipped)*int64(s.node.PageBytes()))
	}
	return resp, res
}

// bytesOf returns the length in bytes of the chunk of key i.
func (s *server) bytesOf(req *Request, i int) int {
	if req.LastTokens <= 0 || i < len(req.Keys)-1 {
		return s.node.PageBytes()
	}
	n, err := s.node.Layout().ChunkBytes(uint32(req.LastTokens))
	if err != nil {
		return s.node.PageBytes() // The put itself reports the wrong token count.
	}
	return min(int(n), s.node.PageBytes())
}

// get waits for the chunks of the keys and verifies every byte of the chunks that are present.
func (s *server) get(ctx context.Context, req *Request) Response {
	begin := time.Now()
	pages, err := s.node.Receiver().Get(ctx, runtime.Get{Request: req.Request, Keys: req.Keys, Layered: req.Layered,
		Timeout: time.Duration(req.WaitMS) * time.Millisecond})
	return s.look(ctx, req, pages, err, time.Since(begin))
}

// look verifies the pages that a get returned, releases them, and returns the response. Pages are verified only after
// the codes ok, not-found and lapsed.
func (s *server) look(ctx context.Context, req *Request, pages *runtime.Pages, err error, took time.Duration) Response {
	code := runtime.CodeOf(err)
	if code != effects.OK && code != effects.NotFound && code != effects.Lapsed {
		return ended(errors.Join(err, pages.Release(ctx)))
	}
	resp := ended(err)
	each := 1 // pages per chunk
	if req.Layered {
		each = s.node.Layers()
	}
	resp.Hits, resp.MicrosTransfer = pages.Len()/each, took.Microseconds()
	err = nil
	for i := 0; i < pages.Len() && err == nil; i++ {
		content := req.Keys[i/each]
		if req.Layered {
			content = layerOf(content, i%each)
		}
		err = s.engine.Look(pages, i, func(b []byte) { s.verifyAs(&resp, content, s.bytesOf(req, i/each), b) })
	}
	if err := errors.Join(err, pages.Release(ctx)); err != nil {
		resp.Code, resp.Error = runtime.CodeOf(err).String(), err.Error()
	}
	return resp
}

// verify checks every byte of the chunk of key i. A missing or an additional byte counts as a wrong byte.
func (s *server) verify(resp *Response, req *Request, i int, b []byte) {
	s.verifyAs(resp, req.Keys[i], s.bytesOf(req, i), b)
}

// verifyAs checks every byte of b, which must be the first want bytes of the content with the given name, and adds the
// counts to resp.
func (s *server) verifyAs(resp *Response, content string, want int, b []byte) {
	wrong := Wrong(b, content)
	wrong += max(want-len(b), len(b)-want)
	resp.Wrong += int64(wrong)
	resp.Bytes += int64(len(b))
}

// fetch reads the chunks of the keys and verifies every byte when the chunk is delivered to the engine.
func (s *server) fetch(ctx context.Context, req *Request) Response {
	var checked Response
	f := runtime.Fetch{Request: req.Request, Keys: req.Keys, Timeout: time.Duration(req.WaitMS) * time.Millisecond}
	s.engine.Take(&f, func(key int, chunk []byte) { s.verify(&checked, req, key, chunk) })
	begin := time.Now()
	hits, err := s.node.Receiver().Fetch(ctx, f)
	resp := ended(err)
	resp.Hits, resp.Bytes, resp.Wrong, resp.MicrosTransfer = hits, checked.Bytes, checked.Wrong,
		time.Since(begin).Microseconds()
	return resp
}
