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

// A run carries out a call and returns the outcome.
type run func(ctx context.Context) outcome

// An args has the decoded arguments of a call, copied so that the arguments outlive the message.
type args struct {
	node     *runtime.Node
	target   *held // the pages or shared chunks that the call names; nil: none
	prefill  *held
	keys     []string
	request  string
	transfer string
	engine   string
	host     string
	ports    [3]uint16 // init, alloc, query

	first, count, tokens, layer, skip int
	last, layered                     bool
	code                              uint32
	reason                            string
	patience, layerTime               time.Duration

	ranks, stages int
	producers     []runtime.ProducerPeer
	blocks        []runtime.Blocks
}

// prepare decodes a call and returns the function that carries out the call. For invalid arguments, the function only
// reports the error. The caller holds the server's mutex.
func (s *Server) prepare(e *engine, w *work, op protocol.CallOp, b *protocol.EngineCall) run {
	a := &args{
		node: s.node, target: e.holds[b.Target], prefill: e.holds[b.Prefill], keys: texts(b.Keys),
		request: string(b.Request), transfer: string(b.Transfer), engine: string(b.Engine), host: string(b.Host),
		ports: [3]uint16{uint16(b.InitPort), uint16(b.AllocPort), uint16(b.QueryPort)},
		first: int(b.First), count: int(b.Count), tokens: int(b.Tokens), layer: int(b.Layer), skip: int(b.Skip),
		last: b.Last, layered: b.Layered, patience: time.Duration(b.PatienceNS), layerTime: time.Duration(b.LayerNS),
		ranks: int(b.Ranks), stages: int(b.Stages), code: b.Code, reason: string(b.Reason),
	}
	switch op { //nolint:exhaustive // The others end nothing.
	case protocol.CallRelease, protocol.CallWithdraw:
		w.ends = b.Target
	case protocol.CallFinishPrefill, protocol.CallDropPrefill:
		w.ends = b.Prefill
	}
	if len(b.Keys) > s.cfg.Keys {
		return refused(op, effects.TooLarge, "keys", strconv.Itoa(len(b.Keys)), "at most "+strconv.Itoa(s.cfg.Keys),
			"name fewer in one call")
	}
	for i := range b.Blocks {
		logical := make([]uint32, len(b.Blocks[i]))
		for j, block := range b.Blocks[i] {
			if block > 1<<32-1 {
				return refused(op, effects.Invalid, "blocks", strconv.FormatUint(block, 10), "a number of a block",
					"number blocks from 0")
			}
			logical[j] = uint32(block)
		}
		a.blocks = append(a.blocks, runtime.Blocks{Group: uint16(min(b.Groups[i], 1<<16-1)), First: b.Firsts[i],
			End: b.Ends[i], Logical: logical})
	}
	for _, text := range b.Producers {
		p, err := producer(string(text))
		if err != nil {
			return refused(op, effects.Invalid, "producers", string(text), "host:init_port:port", "name every rank so")
		}
		a.producers = append(a.producers, p)
	}
	if op == protocol.CallTakeBack {
		return s.takeBack(e.puts[b.Target])
	}
	if do := ops[op]; do != nil {
		return func(ctx context.Context) outcome { return do(ctx, a) }
	}
	if op == protocol.CallStats {
		return s.stats
	}
	if op == protocol.CallFetch || op == protocol.CallSharedFetch {
		return func(ctx context.Context) outcome { return w.fetch(ctx, a, op == protocol.CallSharedFetch) }
	}
	panic(fmt.Sprintf("BUG: nobody carries out %v", op))
}

// refused returns a run that fails with an error, and ends no handle.
func refused(op protocol.CallOp, code effects.Code, field, theirs, ours, remedy string) run {
	return func(context.Context) outcome {
		return outcome{stands: true, err: &runtime.Error{Op: op.String(), Code: code, Stage: effects.StageCommand,
			Field: field, Theirs: theirs, Ours: ours, Remedy: remedy}}
	}
}

func texts(from [][]byte) []string {
	all := make([]string, len(from))
	for i, b := range from {
		all[i] = string(b)
	}
	return all
}

// producer parses an address of the form host:init_port:port.
func producer(text string) (p runtime.ProducerPeer, err error) {
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

// takeBack returns a call that withdraws the offer of a put that has ended. The call succeeds without effect if the
// put has no offer any more.
func (s *Server) takeBack(put *runtime.PutResult) run {
	if put == nil {
		return func(context.Context) outcome { return outcome{} }
	}
	return func(context.Context) outcome { return outcome{err: s.node.Sender().TakeBack(*put)} }
}

// stats returns the statistics of the node and of the attached engines as JSON.
func (s *Server) stats(context.Context) outcome {
	counts := map[string]uint64{}
	for _, c := range s.node.Counts() {
		counts[c.Fact.String()+"."+c.Code.String()] = c.Times
	}
	text, err := json.Marshal(struct {
		Node   any               `json:"node"`
		Facts  map[string]uint64 `json:"facts"`
		Attach Counts            `json:"attached"`
	}{named(s.node.Stats()), counts, s.Counts()})
	return outcome{answer: protocol.EngineAnswer{Stats: text}, err: err}
}

// named returns the fields of a struct of node statistics under the names that all JSON outputs of the node use:
// PagesTotal becomes pages_total.
func named(stats any) map[string]any {
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

// fetch shows chunks to the engine in batches, and waits after each batch until the engine reports that the chunks
// have been used. The call fails if the engine could not use a batch.
func (w *work) fetch(ctx context.Context, a *args, shared bool) outcome {
	show := func(ctx context.Context, first int, chunks []runtime.Place) error {
		pages, lengths := make([]uint64, len(chunks)), make([]uint64, len(chunks))
		for i, c := range chunks {
			pages[i], lengths[i] = uint64(c.Index), uint64(c.Bytes)
		}
		w.server.do(func(m *session.Machine, out *session.Out) { m.Show(w.of, first, pages, lengths, out) })
		select {
		case code := <-w.read:
			if code != effects.OK {
				return errNotUsed
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var taken int
	var err error
	if shared {
		taken, err = a.node.Sharing().Fetch(ctx, runtime.SharedFetch{SharedGet: a.sharedGet(), Places: show})
	} else {
		taken, err = a.node.Receiver().Fetch(ctx, runtime.Fetch{Request: a.request, Keys: a.keys, Places: show,
			Patience: a.patience})
	}
	return outcome{answer: protocol.EngineAnswer{Hits: uint32(taken)}, err: err}
}
