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
	"github.com/kvferry/kvferry/runtime/span"
)

const (
	lineBytesMax = 1 << 20
	// inProgressMax is the maximum number of requests in progress. Further requests wait until a request ends.
	inProgressMax = 64
)

func formatHex(b []byte) string { return hex.EncodeToString(b) }

// A Node is the node that an agent serves, together with the engine that the agent plays for it.
type Node struct {
	*runtime.Node
	Engine Engine
	Links  func() *Links // counts the node's links for Stats; nil if the node's plane has no links to count
}

// WriteRefusal writes the first response for a node that could not be opened. The response carries the error's code and
// text in place of the "ok" that reports that the node serves.
func WriteRefusal(out io.Writer, err error) error {
	return json.NewEncoder(out).Encode(responseOf(err))
}

// Serve answers the requests that it reads from in until in ends or ctx is cancelled. At the end of in, Serve waits for
// the requests in progress. When ctx is cancelled, the requests in progress are cancelled too, and their responses are
// written before Serve returns. A blocked read of in outlives Serve in that case, so a caller that cancels ctx and
// continues to run must close in. Serve returns the error of reading in, the first error of writing to out, or the
// first error of releasing pages after the response was written.
func Serve(ctx context.Context, node Node, in io.Reader, out io.Writer) error {
	s := server{node: node.Node, engine: node.Engine, links: node.Links, out: json.NewEncoder(out)}
	s.writeResponse(Response{Code: effects.OK.String(), Stats: s.collectStats()})
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
				s.writeResponse(s.handleLine(ctx, line))
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
		return fmt.Errorf("reading requests: %w", err)
	}
	return nil
}

func (s *server) handleLine(ctx context.Context, line []byte) Response {
	var req Request
	strict := json.NewDecoder(bytes.NewReader(line))
	strict.DisallowUnknownFields() // A misspelt field must be an error, or it would be ignored silently.
	if err := strict.Decode(&req); err != nil {
		remedy := "write one JSON object per line"
		if json.Valid(line) { // The line is JSON with a wrong field, so the response can still carry the request's ID.
			remedy = "see docs/first-hour.md for valid requests"
			_ = json.Unmarshal(line, &struct{ ID *uint64 }{&req.ID})
		}
		return Response{ID: req.ID, Code: effects.Malformed.String(),
			Error: fmt.Sprintf("not a request: %s; %s", plain.Text(err.Error()), remedy)}
	}
	resp := s.handleRequest(ctx, &req)
	resp.ID = req.ID
	return resp
}

type server struct {
	node    *runtime.Node
	engine  Engine
	links   func() *Links
	working sync.WaitGroup

	mu      sync.Mutex
	cancels map[string]context.CancelFunc // by request: cancels a registration or a loan of blocks in progress
	out     *json.Encoder
	err     error // the first error that no response reports
}

func (s *server) writeResponse(r Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.Encode(r); err != nil && s.err == nil {
		s.err = err
	}
}

func (s *server) recordError(err error) {
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

func (s *server) handleRequest(ctx context.Context, req *Request) Response {
	switch req.Op {
	case "put":
		return s.putChunks(ctx, req)
	case "prefill":
		return s.runPrefill(ctx, req)
	case "recall":
		return s.recallChunks(ctx, req)
	case "get":
		return s.getChunks(ctx, req)
	case "fetch":
		return s.fetchChunks(ctx, req)
	case "store":
		return s.storeChunks(ctx, req)
	case "bring":
		return s.bringChunks(ctx, req)
	case "lookup":
		local, remote, err := s.node.Sharing().Lookup(ctx, req.Keys)
		resp := responseOf(err)
		resp.Hits, resp.Elsewhere = local, remote
		return resp
	case "finish":
		return s.finishRequest(ctx, req)
	case "register":
		return s.registerBlocks(ctx, req)
	case "cancel":
		return s.cancelRequest(req)
	case "abort":
		return s.abortRequest(req)
	case "abandon":
		return responseOf(s.node.Receiver().Abandon(req.Request))
	case "stats":
		return Response{Code: effects.OK.String(), Stats: s.collectStats()}
	case "drain":
		_, err := s.node.Drain(ctx)
		return responseOf(err)
	}
	return Response{Code: effects.Invalid.String(),
		Error: fmt.Sprintf("op is %q; use put, prefill, recall, get, fetch, store, bring, lookup, finish, "+
			"register, cancel, abort, abandon, stats or drain",
			req.Op)}
}

func (s *server) collectStats() *Stats {
	stats := newStats(s.node)
	if s.links != nil {
		stats.Links = s.links()
	}
	return stats
}

func responseOf(err error) Response {
	r := Response{Code: runtime.CodeOf(err).String()}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// putChunks writes the content of the keys into reserved pages and pushes them to the peer as one batch.
func (s *server) putChunks(ctx context.Context, req *Request) Response {
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
		return responseOf(err)
	}
	resp, res := s.fillAndPut(ctx, req, pages)
	// The pages are released whatever the outcome of the request: at once, or as soon as no transfer reads them any
	// more. The node bounds how long that takes.
	release := context.WithoutCancel(ctx)
	select {
	case <-res.Returned():
		if err := pages.Release(release); err != nil && resp.Error == "" {
			return responseOf(err)
		}
	default:
		s.working.Go(func() {
			if err := pages.Release(release); err != nil {
				s.recordError(err)
			}
		})
	}
	return resp
}

func (s *server) fillAndPut(ctx context.Context, req *Request, pages *runtime.Pages) (Response, runtime.PutResult) {
	total := int64(0)
	for i, key := range req.Keys {
		n := s.chunkBytes(req, i)
		if err := s.engine.FillPage(pages, i, n, func(b []byte) { FillContent(b, key) }); err != nil {
			return responseOf(err), runtime.PutResult{}
		}
		total += int64(n)
	}
	peer := runtime.Peer{Host: req.Peer.Host, InitPort: req.Peer.InitPort, AllocPort: req.Peer.AllocPort}
	begin := time.Now()
	res, err := s.node.Sender().Put(ctx, runtime.Put{Peer: peer, Request: req.Request, Keys: req.Keys, Pages: pages,
		LastChunkTokens: req.LastTokens, Last: req.Last, Trace: span.ParseParent(req.Parent)})
	resp := responseOf(err)
	resp.Sent, resp.Skipped, resp.MicrosTransfer = res.Sent, res.Skipped, time.Since(begin).Microseconds()
	if err == nil {
		// The result does not say which chunks were skipped. Only the last chunk can be shorter than a page.
		resp.Bytes = max(0, total-int64(res.Skipped)*int64(s.node.PageBytes()))
	}
	return resp, res
}

// chunkBytes returns the length in bytes of the chunk of key i.
func (s *server) chunkBytes(req *Request, i int) int {
	if req.LastTokens <= 0 || i < len(req.Keys)-1 {
		return s.node.PageBytes()
	}
	n, err := s.node.Layout().ChunkBytes(uint32(req.LastTokens))
	if err != nil {
		return s.node.PageBytes() // The put itself reports the wrong token count.
	}
	return min(int(n), s.node.PageBytes())
}

// getChunks waits for the chunks of the keys and verifies every byte of the chunks that are present.
func (s *server) getChunks(ctx context.Context, req *Request) Response {
	begin := time.Now()
	pages, err := s.node.Receiver().Get(ctx, runtime.Get{Request: req.Request, Keys: req.Keys, Layered: req.Layered,
		Timeout: time.Duration(req.WaitMS) * time.Millisecond, Trace: span.ParseParent(req.Parent)})
	return s.verifyPages(ctx, req, pages, err, time.Since(begin))
}

// verifyPages verifies the pages that a get returned, releases them, and returns the response. Pages are verified only
// after the codes ok, not-found and lapsed.
func (s *server) verifyPages(ctx context.Context, req *Request, pages *runtime.Pages, err error, took time.Duration) Response {
	code := runtime.CodeOf(err)
	if code != effects.OK && code != effects.NotFound && code != effects.Lapsed {
		return responseOf(errors.Join(err, pages.Release(ctx)))
	}
	resp := responseOf(err)
	pagesPerChunk := 1 // pages per chunk
	if req.Layered {
		pagesPerChunk = s.node.Layers()
	}
	resp.Hits, resp.MicrosTransfer = pages.Len()/pagesPerChunk, took.Microseconds()
	err = nil
	for i := 0; i < pages.Len() && err == nil; i++ {
		content := req.Keys[i/pagesPerChunk]
		if req.Layered {
			content = layerKey(content, i%pagesPerChunk)
		}
		err = s.engine.ReadPage(pages, i, func(b []byte) { s.verifyContent(&resp, content, s.chunkBytes(req, i/pagesPerChunk), b) })
	}
	if err := errors.Join(err, pages.Release(ctx)); err != nil {
		resp.Code, resp.Error = runtime.CodeOf(err).String(), err.Error()
	}
	return resp
}

// verifyChunk checks every byte of the chunk of key i. A missing or an additional byte counts as a wrong byte.
func (s *server) verifyChunk(resp *Response, req *Request, i int, b []byte) {
	s.verifyContent(resp, req.Keys[i], s.chunkBytes(req, i), b)
}

// verifyContent checks every byte of b, which must be the first want bytes of the content with the given name, and adds
// the counts to resp.
func (s *server) verifyContent(resp *Response, content string, want int, b []byte) {
	wrong := CountWrong(b, content)
	wrong += max(want-len(b), len(b)-want)
	resp.Wrong += int64(wrong)
	resp.Bytes += int64(len(b))
}

// fetchChunks reads the chunks of the keys and verifies every byte when the chunk is delivered to the engine.
func (s *server) fetchChunks(ctx context.Context, req *Request) Response {
	var checked Response
	f := runtime.Fetch{Request: req.Request, Keys: req.Keys, Timeout: time.Duration(req.WaitMS) * time.Millisecond,
		Trace: span.ParseParent(req.Parent)}
	s.engine.SetDestination(&f, func(key int, chunk []byte) { s.verifyChunk(&checked, req, key, chunk) })
	begin := time.Now()
	hits, err := s.node.Receiver().Fetch(ctx, f)
	resp := responseOf(err)
	resp.Hits, resp.Bytes, resp.Wrong, resp.MicrosTransfer = hits, checked.Bytes, checked.Wrong,
		time.Since(begin).Microseconds()
	return resp
}
