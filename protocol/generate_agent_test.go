package protocol

import "pgregory.net/rapid"

// Generators of messages between an engine and the agent of its host.

var (
	genPort      = rapid.Map(genUint64, func(v uint64) uint32 { return uint32(v % (portMax + 1)) })
	genTexts     = rapid.SliceOfN(genText, 0, 8)
	genNumbering = rapid.OneOf(rapid.Just(uint32(0)), genUint32)

	genAttachRequest = rapid.Custom(func(t *rapid.T) *AttachRequest {
		return &AttachRequest{
			Version: genUint32.Draw(t, "version"), Name: genText.Draw(t, "name"), Session: genUint64.Draw(t, "session"),
			Incarnation: genMaybeUUID.Draw(t, "life"), Open: genList.Draw(t, "open"),
			Process: genNumbering.Draw(t, "process"), Adopts: rapid.Bool().Draw(t, "adopts"),
		}
	})

	genAttachResponse = rapid.Custom(func(t *rapid.T) *AttachResponse {
		return &AttachResponse{
			Version: genUint32.Draw(t, "version"), Session: genUint64.Draw(t, "session"),
			Incarnation: genMaybeUUID.Draw(t, "life"),
			Resumed:     rapid.Bool().Draw(t, "resumed"), Code: genUint32.Draw(t, "code"), Reason: genText.Draw(t, "reason"),
			Offset: genUint64.Draw(t, "offset"), PageBytes: genUint64.Draw(t, "page"), Pages: genUint32.Draw(t, "pages"),
			Layers: genUint32.Draw(t, "layers"), Window: genUint32.Draw(t, "window"), Keys: genUint32.Draw(t, "keys"),
			Bytes: genUint32.Draw(t, "bytes"), Sides: genTexts.Draw(t, "sides"), Tenants: rapid.Bool().Draw(t, "tenants"),
			Producer:  genText.Draw(t, "producer"),
			DeviceKey: genText.Draw(t, "key"), Device: genNumbering.Draw(t, "device"),
			DeviceBytes: genUint64.Draw(t, "used"), Format: genFormat.Draw(t, "fmt"),
			Shape: genShape.Draw(t, "shape"), Dtype: genDtype.Draw(t, "dtype"),
		}
	})

	genEngineCall = rapid.Custom(func(t *rapid.T) *EngineCall {
		m := &EngineCall{ID: genUint64.Draw(t, "id"), Done: genList.Draw(t, "done"), Op: genOp.Draw(t, "op")}
		if rapid.Bool().Draw(t, "subject") {
			m.Target, m.Prefill = genUint64.Draw(t, "target"), genUint64.Draw(t, "prefill")
			m.Keys = rapid.SliceOfN(genKey, 0, 40).Draw(t, "keys")
			m.Request, m.Transfer = genText.Draw(t, "request"), genText.Draw(t, "transfer")
			m.Engine, m.Host = genText.Draw(t, "engine"), genText.Draw(t, "host")
			m.InitPort, m.AllocPort = genPort.Draw(t, "init"), genPort.Draw(t, "alloc")
			m.QueryPort = genPort.Draw(t, "query")
		}
		if rapid.Bool().Draw(t, "numbers") {
			m.First, m.Count = genNumbering.Draw(t, "first"), genNumbering.Draw(t, "count")
			m.Tokens, m.Layer = genNumbering.Draw(t, "tokens"), genNumbering.Draw(t, "layer")
			m.Skip, m.Last = genNumbering.Draw(t, "skip"), rapid.Bool().Draw(t, "last")
			m.Layered = rapid.Bool().Draw(t, "layered")
			m.PatienceNS = uint64(genInstant.Draw(t, "patience"))
			m.LayerNS = uint64(genInstant.Draw(t, "time"))
		}
		if rapid.Bool().Draw(t, "registration") {
			n := rapid.IntRange(0, 8).Draw(t, "lists")
			parallel := rapid.SliceOfN(genUint64, n, n)
			m.Ranks, m.Stages = genNumbering.Draw(t, "ranks"), genNumbering.Draw(t, "stages")
			m.Producers = genTexts.Draw(t, "producers")
			m.Groups, m.Firsts = parallel.Draw(t, "groups"), parallel.Draw(t, "firsts")
			m.Ends, m.Blocks = parallel.Draw(t, "ends"), rapid.SliceOfN(genList, n, n).Draw(t, "blocks")
		}
		if rapid.Bool().Draw(t, "traced") {
			m.Trace = rapid.SliceOfN(rapid.Byte(), 1, 30).Draw(t, "trace")
		}
		if rapid.Bool().Draw(t, "end") {
			m.Code, m.Reason = genNumbering.Draw(t, "code"), genText.Draw(t, "reason")
		}
		return m
	})
	// An agent is asked for what it does not know, too.
	genOp = rapid.OneOf(genText, rapid.Map(rapid.SampledFrom(CallOps()), func(o CallOp) []byte {
		return []byte(o.String())
	}))

	genEngineAnswer = rapid.Custom(func(t *rapid.T) *EngineAnswer {
		m := &EngineAnswer{
			ID: genUint64.Draw(t, "id"), Code: genUint32.Draw(t, "code"), Held: rapid.Bool().Draw(t, "held"),
			Hits: genUint32.Draw(t, "hits"), Sent: genUint32.Draw(t, "sent"), Skipped: genUint32.Draw(t, "skipped"),
			Stats: rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "stats"),
		}
		m.Pages, m.Lengths = drawPages(t)
		if rapid.Bool().Draw(t, "why") {
			m.Count, m.Peer, m.Stage = genUint32.Draw(t, "count"), genText.Draw(t, "peer"), genText.Draw(t, "stage")
			m.Field, m.Ours, m.Theirs = genText.Draw(t, "field"), genText.Draw(t, "ours"), genText.Draw(t, "theirs")
			m.Said, m.Remedy = genText.Draw(t, "said"), genText.Draw(t, "remedy")
		}
		return m
	})
)

// drawPages draws pages, and a length for each.
func drawPages(t *rapid.T) (pages, lengths []uint64) {
	n := rapid.IntRange(0, 40).Draw(t, "pages")
	list := rapid.SliceOfN(genUint64, n, n)
	return list.Draw(t, "numbers"), list.Draw(t, "lengths")
}

// genAgent draws a message of FamilyAgent.
func genAgent(t *rapid.T, tag Tag) Message {
	switch tag {
	case TagAttachRequest:
		return genAttachRequest.Draw(t, "message")
	case TagAttachResponse:
		return genAttachResponse.Draw(t, "message")
	case TagEngineCall:
		return genEngineCall.Draw(t, "message")
	case TagEngineAnswer:
		return genEngineAnswer.Draw(t, "message")
	case TagEngineShow:
		m := &EngineShow{ID: genUint64.Draw(t, "id"), First: genUint32.Draw(t, "first")}
		m.Pages, m.Lengths = drawPages(t)
		return m
	case TagEngineShown:
		return &EngineShown{genUint64.Draw(t, "id"), genUint32.Draw(t, "first"), genUint32.Draw(t, "code")}
	case TagEngineReturned:
		return &EngineReturned{genUint64.Draw(t, "id")}
	}
	panic("no generator for " + tag.String())
}
