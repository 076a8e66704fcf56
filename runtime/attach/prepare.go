package attach

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
)

// A callFunc carries out a call and returns the outcome.
type callFunc func(ctx context.Context) outcome

// An args has the decoded arguments of a call, copied so that the arguments outlive the message.
type args struct {
	node     *runtime.Node
	target   *handle // the pages or shared chunks that the call names; nil: none
	prefill  *handle
	keys     []string
	domain   string
	tenant   effects.Tenant
	request  string
	transfer string
	engine   string
	host     string
	ports    [3]uint16 // init, alloc, query

	first, count, tokens, layer, skip int
	last, layered                     bool
	code                              uint32
	reason                            string
	timeout, layerTime                time.Duration
	trace                             effects.TraceContext

	ranks, stages int
	producers     []runtime.ProducerPeer
	blocks        []runtime.Blocks
}

// prepareCall decodes a call and returns the function that carries out the call. For invalid arguments, the function
// only reports the error. The caller holds the server's mutex.
func (s *Server) prepareCall(e *engine, w *call, op protocol.CallOp, b *protocol.EngineCall) callFunc {
	a := &args{
		node: s.node, target: e.handles[b.Target], prefill: e.handles[b.Prefill], keys: toStrings(b.Keys),
		domain:  string(b.Domain),
		request: string(b.Request), transfer: string(b.Transfer), engine: string(b.Engine), host: string(b.Host),
		ports: [3]uint16{uint16(b.InitPort), uint16(b.AllocPort), uint16(b.QueryPort)},
		first: int(b.First), count: int(b.Count), tokens: int(b.Tokens), layer: int(b.Layer), skip: int(b.Skip),
		last: b.Last, layered: b.Layered, timeout: time.Duration(b.PatienceNS), layerTime: time.Duration(b.LayerNS),
		ranks: int(b.Ranks), stages: int(b.Stages), code: b.Code, reason: string(b.Reason),
		trace: effects.TraceFromWire(b.Trace),
	}
	switch op { //nolint:exhaustive // The others end nothing.
	case protocol.CallRelease, protocol.CallWithdraw:
		w.endedHandle = b.Target
	case protocol.CallFinishPrefill, protocol.CallDropPrefill:
		w.endedHandle = b.Prefill
	}
	if len(b.Keys) > s.cfg.Keys {
		return failingCall(op, effects.TooLarge, "keys", strconv.Itoa(len(b.Keys)), "at most "+strconv.Itoa(s.cfg.Keys),
			"name fewer keys in one call")
	}
	for i := range b.Blocks {
		logical := make([]uint32, len(b.Blocks[i]))
		for j, block := range b.Blocks[i] {
			if block > 1<<32-1 {
				return failingCall(op, effects.Invalid, "blocks", strconv.FormatUint(block, 10), "a block number",
					"number blocks from 0")
			}
			logical[j] = uint32(block)
		}
		a.blocks = append(a.blocks, runtime.Blocks{Group: uint16(min(b.Groups[i], 1<<16-1)), First: b.Firsts[i],
			End: b.Ends[i], Logical: logical})
	}
	for _, text := range b.Producers {
		p, err := parseProducer(string(text))
		if err != nil {
			return failingCall(op, effects.Invalid, "producers", string(text), "host:init_port:port",
				"write each rank in this form")
		}
		a.producers = append(a.producers, p)
	}
	if len(b.Tenant) > 0 {
		tenant, ok := effects.ParseTenant(string(b.Tenant))
		if !ok {
			return failingCall(op, effects.Invalid, "tenant", string(b.Tenant), "16 hex digits, or default",
				"give the tenant as `kvferry tenant` prints it")
		}
		a.tenant = tenant
	}
	if op == protocol.CallTakeBack {
		return s.prepareWithdraw(e.puts[b.Target])
	}
	if do := callHandlers[op]; do != nil {
		return func(ctx context.Context) outcome { return do(ctx, a) }
	}
	if op == protocol.CallStats {
		return s.collectStats
	}
	if op == protocol.CallFetch || op == protocol.CallSharedFetch {
		return func(ctx context.Context) outcome { return w.fetchChunks(ctx, a, op == protocol.CallSharedFetch) }
	}
	panic(fmt.Sprintf("BUG: no handler for %v", op))
}

// failingCall returns a run that fails with an error, and ends no handle.
func failingCall(op protocol.CallOp, code effects.Code, field, theirs, ours, remedy string) callFunc {
	return func(context.Context) outcome {
		return outcome{stillHeld: true, err: &runtime.Error{Op: op.String(), Code: code, Stage: effects.StageCommand,
			Field: field, Theirs: theirs, Ours: ours, Remedy: remedy}}
	}
}

func toStrings(texts [][]byte) []string {
	all := make([]string, len(texts))
	for i, b := range texts {
		all[i] = string(b)
	}
	return all
}

// parseProducer parses an address of the form host:init_port:port.
func parseProducer(text string) (p runtime.ProducerPeer, err error) {
	rest, port, err := net.SplitHostPort(text)
	if err != nil {
		// SplitHostPort rejects two ports, unless the host is in brackets.
		at := lastColon(text)
		if at < 0 {
			return p, err
		}
		rest, port = text[:at], text[at+1:]
	}
	host, init, err := net.SplitHostPort(rest)
	if err != nil {
		return p, err
	}
	initPort, err := strconv.ParseUint(init, 10, 16)
	if err != nil {
		return p, err
	}
	ownPort, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return p, err
	}
	return runtime.ProducerPeer{Host: host, InitPort: uint16(initPort), Port: uint16(ownPort)}, nil
}

func lastColon(s string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == ':' {
			return i
		}
	}
	return -1
}

// prepareWithdraw returns a call that withdraws the offer of a put that has ended. The call succeeds without effect if
// the put has no offer any more.
func (s *Server) prepareWithdraw(put *runtime.PutResult) callFunc {
	if put == nil {
		return func(context.Context) outcome { return outcome{} }
	}
	return func(context.Context) outcome { return outcome{err: s.node.Sender().WithdrawPut(*put)} }
}

// collectStats returns the statistics of the node and of the attached engines as JSON.
func (s *Server) collectStats(context.Context) outcome {
	counts := map[string]uint64{}
	for _, c := range s.node.FactCounts() {
		counts[c.Fact.String()+"."+c.Code.String()] = c.Times
	}
	text, err := json.Marshal(struct {
		Node   any               `json:"node"`
		Facts  map[string]uint64 `json:"facts"`
		Attach Counts            `json:"attached"`
	}{snakeCaseFields(s.node.Stats()), counts, s.Counts()})
	return outcome{answer: protocol.EngineAnswer{Stats: text}, err: err}
}

// snakeCaseFields returns the fields of a struct of node statistics under the names that all JSON outputs of the node
// use: PagesTotal becomes pages_total.
func snakeCaseFields(stats any) map[string]any {
	all := map[string]any{}
	for field, value := range reflect.ValueOf(stats).Fields() {
		name := field.Name
		if name == "Layers" { // The field is named after its type; it counts layerwise prefills.
			name = "Prefills"
		}
		var snake strings.Builder
		for i, r := range name {
			if unicode.IsUpper(r) && i > 0 {
				snake.WriteByte('_')
			}
			snake.WriteRune(unicode.ToLower(r))
		}
		all[snake.String()] = value.Interface()
	}
	return all
}

// fetchChunks shows chunks to the engine in batches, and waits after each batch until the engine reports that the
// chunks have been used. The call fails if the engine could not use a batch.
func (w *call) fetchChunks(ctx context.Context, a *args, shared bool) outcome {
	show := func(ctx context.Context, first int, chunks []runtime.MappedPage) error {
		pages, lengths := make([]uint64, len(chunks)), make([]uint64, len(chunks))
		for i, c := range chunks {
			pages[i], lengths[i] = uint64(c.Index), uint64(c.Bytes)
		}
		w.server.lockAndStep(func(m *session.Machine, out *session.Effects) { m.ShowChunks(w.key, first, pages, lengths, out) })
		select {
		case code := <-w.shownResult:
			if code != effects.OK {
				return errChunksNotRead
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var taken int
	var err error
	if shared {
		taken, err = a.node.Sharing().Fetch(ctx, runtime.SharedFetch{SharedGet: a.sharedGetArgs(), ScatterMapped: show})
	} else {
		taken, err = a.node.Receiver().Fetch(ctx, runtime.Fetch{Request: a.request, Keys: a.keys, Domain: a.domain, ScatterMapped: show,
			Timeout: a.timeout, Trace: a.trace})
	}
	return outcome{answer: protocol.EngineAnswer{Hits: uint32(taken)}, err: err}
}
