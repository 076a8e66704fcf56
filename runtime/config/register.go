package config

import (
	"errors"
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// Register has the parameters of a node on which an engine's blocks are registered, so that a producer pushes into the
// blocks (register.engine_id). The pool is then the engine's own memory. A page is a cell: a kernel block of a layer,
// with some of the heads. All pages are claimed by number. Without Enabled, the remaining fields have no effect.
type Register struct {
	Enabled bool
	// Ranks and Stages are the numbers of tensor-parallel ranks and pipeline stages of the engine, including ranks
	// that are configured in separate files. Rank is the rank of the first entry of the file's lists. Stage is the
	// stage of this node.
	Ranks, Rank, Stages, Stage uint32
	Heads, CellHeads           uint32 // KV heads of the model, and of a page; 0 with MLA
	Blocks, PerLogical         uint32 // kernel blocks of a layer, and of a logical block
	BlockTokens                uint32 // tokens of a kernel block; equal to Config.ChunkTokens
	// Layers are the layers of a rank, in the order of the regions, and are known once Config.Layout is known.
	Layers []geometry.Layer

	numbers, groups []uint32 // as written in the file
	first           uint32
}

const (
	engineIDKey      = "register.engine_id"
	leaseDurationKey = "register.kv_lease_duration"

	messageBytesKey = "limits.message_bytes"
	keysPerBatchKey = "limits.keys_per_batch"
)

// registerKeys are kvferry's own keys for a node on which an engine's blocks are registered.
var registerKeys = []key{
	{name: engineIDKey, kind: labelKind(256, func(d *draft) *string { return &d.cfg.Machine.EngineID }),
		doc: "the engine's name, the same for all of its ranks and for no other engine. With it the pool is the engine's own " +
			"blocks, and the node only registers blocks or writes into registered blocks; `pd_role` must be `both`"},
	{name: "register.tp_size", kind: integerKind(1, geometry.RanksMax,
		func(d *draft) *uint32 { return &d.cfg.Register.Ranks }), def: "1", doc: "tensor-parallel ranks of the engine"},
	{name: "register.tp_rank", kind: integerKind(0, geometry.RanksMax-1,
		func(d *draft) *uint32 { return &d.cfg.Register.Rank }), def: "0",
		doc: "the rank of the first entry of this file's lists of ports; the following entries are the next ranks"},
	{name: "register.pp_size", kind: integerKind(1, geometry.StagesMax,
		func(d *draft) *uint32 { return &d.cfg.Register.Stages }), def: "1",
		doc: "pipeline stages of the engine; a decode engine has one"},
	{name: "register.pp_rank", kind: integerKind(0, geometry.StagesMax-1,
		func(d *draft) *uint32 { return &d.cfg.Register.Stage }), def: "0", doc: "the pipeline stage of this node"},
	{name: "register.kv_heads", kind: integerKind(0, geometry.HeadsMax,
		func(d *draft) *uint32 { return &d.cfg.Register.Heads }), def: "0",
		doc: "KV heads of the model, over all ranks; 0 with `layout.mla`"},
	{name: "register.cell_heads", kind: integerKind(0, geometry.HeadsMax,
		func(d *draft) *uint32 { return &d.cfg.Register.CellHeads }), def: "0",
		doc: "the number of KV heads in a page, the same for all engines: the heads of a rank of the engine with the most " +
			"ranks; 0 is all heads of a rank"},
	{name: "register.blocks", kind: integerKind(0, pagesMax, func(d *draft) *uint32 { return &d.cfg.Register.Blocks }),
		def: "0", doc: "the number of kernel blocks of a layer; it determines the size of the pool"},
	{name: "register.blocks_per_logical", kind: integerKind(1, 1<<16,
		func(d *draft) *uint32 { return &d.cfg.Register.PerLogical }), def: "1",
		doc: "the number of kernel blocks in a logical block, which is the unit of an engine's block table"},
	{name: "register.block_tokens", kind: integerKind(1, 1<<20,
		func(d *draft) *uint32 { return &d.cfg.Register.BlockTokens }),
		doc: "the number of tokens in a kernel block; `chunk_size` if unset, and equal to it if both are set"},
	{name: "register.layers", kind: numbersKind("layers", geometry.LayersMax, 1<<31-1,
		func(d *draft) *[]uint32 { return &d.cfg.Register.numbers }),
		doc: "the numbers in the model of the layers of a rank; if unset, consecutive numbers from `register.first_layer`"},
	{name: "register.first_layer", kind: integerKind(0, 1<<31-1,
		func(d *draft) *uint32 { return &d.cfg.Register.first }), def: "0",
		doc: "the number of the first of `layout.num_layers` layers that a rank has"},
	{name: "register.groups", kind: numbersKind("groups", geometry.LayersMax, geometry.Shared,
		func(d *draft) *[]uint32 { return &d.cfg.Register.groups }),
		doc: "the KV-cache group of each of these layers; 65535 is a layer whose memory holds blocks of all groups. Group 0 " +
			"if unset"},
	{name: leaseDurationKey,
		kind: durationKind(10*time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.RegistrationLease }),
		doc:  "how long a producer lends finished blocks until all of them are registered; longer than `lease_guard`"},
	{name: "register.push_registration_timeout",
		kind: durationKind(time.Millisecond, 24*time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.RegisterTimeout }),
		doc:  "how long a consumer waits for its blocks, and a registration at a producer for its request"},
	{name: "register.exact_ids", kind: boolKind(func(d *draft) *bool { return &d.cfg.Machine.ExactIDs }), def: "false",
		doc: "requests match only by their whole id or transfer id, and not by the id without the digits that vLLM appends"},
	{name: "register.receptions", kind: integerKind(1, 1<<14, func(d *draft) *uint32 { return &d.cfg.Machine.ReceptionsMax }),
		doc: "the maximum number of registered requests of a consumer"},
	{name: "register.producers", kind: integerKind(1, 1<<12, func(d *draft) *uint32 { return &d.cfg.Machine.ProducersMax }),
		doc: "the maximum number of producer ranks of one request"},
	{name: "register.batches", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.FinishedMax }),
		doc: "the maximum number of finished requests that a producer lends"},
	{name: "register.registrations", kind: integerKind(1, 1<<16,
		func(d *draft) *uint32 { return &d.cfg.Machine.RegistrationsMax }),
		doc: "the maximum number of registrations that wait at a producer or are being written; a consumer never has more " +
			"than it leaves free for others"},
	{name: "register.expected", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.ExpectedMax }),
		doc: "the maximum number of requests, counted for each producer rank, that a consumer expects or has declined"},
	{name: "register.names", kind: integerKind(1, 1<<12, func(d *draft) *uint32 { return &d.cfg.Machine.NamesMax }),
		doc: "the maximum number of requests in one heartbeat"},
	{name: "register.window", kind: integerKind(1, uint32(effects.ChannelRegister.UnansweredMax()),
		func(d *draft) *uint16 { return &d.cfg.Machine.RegisterWindow }),
		doc: "the maximum number of registrations in progress at one peer; further registrations wait in order"},
}

// numbersKind returns a kind that reads a list of numbers. A single number is a list of length 1.
func numbersKind(plural string, countMax int, valueMax uint32, field func(*draft) *[]uint32) kind {
	return kind{takes: "list of numbers", read: func(d *draft, n *yaml.Node) (Code, string) {
		items := []*yaml.Node{n}
		if n.Kind == yaml.SequenceNode {
			items = n.Content
		}
		if len(items) == 0 || len(items) > countMax {
			return Range, fmt.Sprintf("write a list of 1 to %d %s: [0, 1]", countMax, plural)
		}
		all := make([]uint32, len(items))
		for i, item := range items {
			s, remedy := unquotedText(item)
			v, err := parseUint(s)
			if remedy != "" || err != nil || v > uint64(valueMax) {
				return Range, fmt.Sprintf("write whole numbers up to %d (item %d of %d is %q)", valueMax, i+1, len(items),
					shortenValue(item.Value))
			}
			all[i] = uint32(v)
		}
		*field(d) = all
		return codeOK, ""
	}}
}

// beginRegister resets the keys of registered blocks, with notes, if register.engine_id is not given. With
// register.engine_id, beginRegister supplies the settings that the node does not need, before later checks report them
// as missing.
func (d *draft) beginRegister() {
	r := &d.cfg.Register
	if r.Enabled = d.isGiven(ownPath(engineIDKey)); !r.Enabled {
		for i := range registerKeys {
			d.addNote(ownPath(registerKeys[i].name), "no effect without register.engine_id")
		}
		*r, d.cfg.Machine.Registering = Register{}, rank.DefaultConfig().Registering
		return
	}
	for _, name := range []string{"pd_proxy_host", "pd_proxy_port", "pd_skip_proxy_notification"} {
		d.addNote(name, "no effect with register.engine_id: no proxy is notified of registered requests")
	}
	d.skipProxy = true
	const follows = "no effect with register.engine_id: the pool follows from register.blocks and the layout"
	for _, name := range []string{bufferKey, cpuBufferKey} {
		d.addNote(name, follows)
	}
	switch {
	case r.BlockTokens == 0:
		r.BlockTokens = d.cfg.ChunkTokens
	case !d.isGiven("chunk_size"):
		d.cfg.ChunkTokens = r.BlockTokens
	}
}

// validateRegister checks the keys of registered blocks together.
func (d *draft) validateRegister() {
	r, c := &d.cfg.Register, &d.cfg
	if !r.Enabled {
		return
	}
	for _, other := range []struct {
		is     bool
		key    string
		code   Code
		remedy string
	}{
		{c.Share.Enabled, engineIDKey, Conflict,
			"the engine's own blocks are not shared; set enable_p2p: false, or remove it"},
		{c.Role != Both && d.isGiven("pd_role"), engineIDKey, Conflict,
			"a node with registered blocks connects to peers and accepts connections; set pd_role: both, or remove it"},
		{c.Pull.Enabled, engineIDKey, Conflict,
			"registered blocks are pushed, and not offered; set pd_pull_mode: false, or remove it"},
		{c.Machine.Recalls, engineIDKey, Conflict,
			"registered blocks are not read back; set pd_bidirectional: false, or remove it"},
		{c.Layerwise.Enabled, engineIDKey, Conflict,
			"registered blocks are sent when the whole request is computed; set use_layerwise: false, or remove it"},
		{c.Channel == ChannelHCCL || c.Device.Kind == DeviceNPU, engineIDKey, Unsupported,
			unsupportedPrefix + "blocks are registered over shm, tcp and nixl alone; set pd_buffer_device: cpu and transfer_channel: " +
				"auto, or remove it"},
		{r.BlockTokens != c.ChunkTokens, "register.block_tokens", Conflict,
			fmt.Sprintf("chunk_size is %d, and a page is one kernel block; give both the same, or one alone", c.ChunkTokens)},
		{r.Blocks == 0, "register.blocks", Missing, "set the number of kernel blocks of a layer, such as register.blocks: " +
			"4096"},
		{d.layout.mla && r.Heads > 0, "register.kv_heads", Conflict, "write 0: with layout.mla each rank has all heads"},
		{len(r.numbers) > 0 && d.isGiven(ownPath("register.first_layer")), "register.first_layer", Conflict,
			"register.layers names all layers; remove one of the two keys"},
		{uint64(r.Rank)+uint64(max(1, c.RankCount())) > uint64(r.Ranks), "register.tp_size", Conflict,
			fmt.Sprintf("the lists have ports for %d ranks from register.tp_rank %d on; make it at least %d", c.RankCount(), r.Rank,
				uint64(r.Rank)+uint64(max(1, c.RankCount())))},
		{r.Stage >= r.Stages, "register.pp_rank", Conflict, fmt.Sprintf("make it less than register.pp_size, %d", r.Stages)},
	} {
		if other.is {
			d.addProblemAt(ownPath(other.key), other.code, other.remedy)
		}
	}
}

// checkRegisterTimes checks the durations. The check must run after the lease guard is known, because the guard may
// depend on further keys.
func (d *draft) checkRegisterTimes() {
	if m, guard := &d.cfg.Machine, d.cfg.Machine.LeaseGuard; d.cfg.Register.Enabled && m.RegistrationLease <= guard {
		d.addProblemAt(ownPath(leaseDurationKey), Conflict, fmt.Sprintf("make it longer than lease_guard, %v; nothing could be written",
			guard))
	}
}

// Geometry returns how the cache of a rank is divided into pages; rank is an index into the file's lists. The result
// is nil without Register and before Layout is known. The list of layers is shared with the Config.
func (c *Config) Geometry(rank int) *geometry.Geometry {
	r := &c.Register
	if !r.Enabled || c.Layout == (protocol.Layout{}) {
		return nil
	}
	return r.geometry(uint32(rank))
}

func (r *Register) geometry(rank uint32) *geometry.Geometry {
	return &geometry.Geometry{
		Ranks: r.Ranks, Rank: r.Rank + rank, Stages: r.Stages, Stage: r.Stage, Heads: r.Heads, CellHeads: r.CellHeads,
		Blocks: r.Blocks, PerLogical: r.PerLogical, BlockTokens: r.BlockTokens, Layers: r.Layers,
	}
}

// All pages of a request are sent in a single registration. Their number is bounded like the keys of a batch, but a
// request has many more pages than chunk keys.
const (
	keysPerBatchMax         = 1 << 16
	pagesRegisteredMax      = 1 << 20
	pagesRegisteredDefault  = 1 << 19
	registeredPageBytes     = 14       // bytes of a message for each page: the page generation, and at most one block number
	registrationOverheadMax = 16 << 10 // upper bound of the other bytes of a message
)

// finishRegistration sets the number of pages of a registration, and the size of the message. If the file gives only
// one of the two values, the second value is derived.
func (d *draft) finishRegistration() {
	keys, bytes := ownPath(keysPerBatchKey), ownPath(messageBytesKey)
	if !d.cfg.Register.Enabled {
		if d.keysPerBatch > keysPerBatchMax {
			d.addProblemAt(keys, Range, fmt.Sprintf("make it at most %d, or register blocks (register.engine_id)", keysPerBatchMax))
		}
		return
	}
	if !d.isGiven(keys) {
		d.keysPerBatch = pagesRegisteredDefault
		if fit := (d.messageBytes - min(d.messageBytes, registrationOverheadMax)) / registeredPageBytes; d.isGiven(bytes) {
			d.keysPerBatch = uint32(max(1, min(fit, pagesRegisteredDefault)))
		}
	}
	need := uint64(d.keysPerBatch)*registeredPageBytes + registrationOverheadMax
	if !d.isGiven(bytes) {
		d.messageBytes = max(d.messageBytes, need)
	}
	if d.messageBytes < need {
		d.addProblemAt(bytes, Conflict, fmt.Sprintf("a registration of limits.keys_per_batch, %d pages, may have %d bytes; make a "+
			"message as long, or that less", d.keysPerBatch, need))
	}
}

// registerFields maps the names that package geometry uses to kvferry's keys.
var registerFields = map[string]string{
	"ranks": "register.tp_size", "rank": "register.tp_rank", "stages": "register.pp_size", "stage": "register.pp_rank",
	"heads": "register.kv_heads", "cell_heads": "register.cell_heads", "layers": "register.layers",
	"blocks": "register.blocks", "per_logical": "register.blocks_per_logical", "block_tokens": "register.block_tokens",
}

// cellLayout returns the layout of a page of registered blocks and the number of pages, for a rank with blocks of
// layout l over all layers. fits is false, with a problem, if the keys do not fit together.
func (c *Config) cellLayout(l protocol.Layout) (cell protocol.Layout, pages uint32, p Problem, fits bool) {
	r := c.Register
	problem := func(key string, value any, remedy string, args ...any) (protocol.Layout, uint32, Problem, bool) {
		return l, 0, Problem{Code: Conflict, Field: ownPath(key), Value: fmt.Sprint(value),
			Remedy: fmt.Sprintf(remedy, args...)}, false
	}
	cell, layers, has := l.OneLayer()
	if !has {
		return problem(engineIDKey, c.Machine.EngineID,
			"the engine's blocks are %v, which has no layers; name a layout that has", l.Format)
	}
	mla := l.Format == protocol.FormatKVMLA
	switch {
	case len(r.numbers) > 0 && len(r.numbers) != int(layers):
		return problem("register.layers", len(r.numbers), "the layout has %d layers; list each that this rank has once", layers)
	case len(r.groups) > 0 && len(r.groups) != int(layers):
		return problem("register.groups", len(r.groups), "the layout has %d layers; give one group for each", layers)
	case layers > geometry.LayersMax:
		return problem("layout.num_layers", layers, "make it at most %d", geometry.LayersMax)
	case mla != (r.Heads == 0):
		return problem("register.kv_heads", r.Heads,
			"the layout's format is %v; write 0 where each rank has all (MLA), else the "+
				"KV heads of the model", l.Format)
	}
	r.Layers = make([]geometry.Layer, layers)
	for i := range r.Layers {
		r.Layers[i].Number = r.first + uint32(i)
		if len(r.numbers) > 0 {
			r.Layers[i].Number = r.numbers[i]
		}
		if len(r.groups) > 0 {
			r.Layers[i].Group = uint16(r.groups[i])
		}
	}
	headsPerRank := max(1, r.Heads/r.Ranks)
	if !mla && r.CellHeads == 0 {
		r.CellHeads = headsPerRank
	}
	g := r.geometry(0)
	if err := g.Check(); err != nil {
		field, text := engineIDKey, err.Error()
		if e := (*geometry.Error)(nil); errors.As(err, &e) {
			field = registerFields[e.Field]
			return problem(field, e.Value, "%s", e.Remedy)
		}
		return problem(field, c.Machine.EngineID, "%s", text)
	}
	if hidden := &cell.Shape.Dims[cell.Shape.N-1]; !mla {
		if *hidden%headsPerRank != 0 {
			return problem("register.kv_heads", r.Heads,
				"a rank has %d of them, and the layout %d elements of each token in all its "+
					"heads: give the layout %[1]d heads", headsPerRank, *hidden)
		}
		*hidden = *hidden / headsPerRank * r.CellHeads
	}
	n := g.CountPages()
	if n > pagesMax {
		return problem("register.blocks", r.Blocks, "with %d layers of %d cells they are %d pages; make it at most %d pages",
			layers, g.SharesPerBlock(), n, uint64(pagesMax))
	}
	c.Register = r
	return cell, uint32(n), Problem{}, true
}

// checkRegister checks whether the blocks of the two engines can be paired. Either engine may be the producer, as the
// blocks of each request decide, so the checks are symmetric.
func (c *comparison) checkRegister() {
	a, b := &c.a.Register, &c.b.Register
	switch {
	case a.Enabled != b.Enabled:
		c.addProblem(ownPath(engineIDKey), c.b.Machine.EngineID, "%s has %q; a node with registered blocks works only with "+
			"another such node", c.a.Name,
			c.a.Machine.EngineID)
	case !a.Enabled:
	case c.a.Machine.EngineID == c.b.Machine.EngineID:
		c.addProblem(ownPath(engineIDKey), c.b.Machine.EngineID, "%s has the same; give each engine its own", c.a.Name)
	case a.Ranks%b.Ranks != 0 && b.Ranks%a.Ranks != 0:
		c.addProblem(ownPath("register.tp_size"), b.Ranks, "%s has %d; one must divide the other", c.a.Name, a.Ranks)
	case a.Heads != b.Heads:
		c.addProblem(ownPath("register.kv_heads"), b.Heads, "%s has %d; it is a property of the model, so give both the same",
			c.a.Name, a.Heads)
	case a.CellHeads != b.CellHeads:
		c.addProblem(ownPath("register.cell_heads"), b.CellHeads,
			"%s has %d; pages are sent unchanged: give both the number of heads of a rank of the engine with more ranks", c.a.Name, a.CellHeads)
	case a.Stages != 1 && b.Stages != 1:
		c.addProblem(ownPath("register.pp_size"), b.Stages, "%s has %d; the engine that receives blocks must have one stage",
			c.a.Name, a.Stages)
	}
}
