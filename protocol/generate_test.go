package protocol

import (
	"pgregory.net/rapid"
)

// Generators of well-formed messages. Numbers favour the edges where encodings change width.

var (
	genUint64 = rapid.OneOf(rapid.Uint64(),
		rapid.SampledFrom([]uint64{0, 127, 128, 255, 256, 1<<16 - 1, 1 << 16, 1<<32 - 1, 1 << 32, 1<<64 - 1}))
	genInt64 = rapid.OneOf(rapid.Int64(),
		rapid.SampledFrom([]int64{0, -1, -32, -33, -128, -129, -1 << 15, -1<<15 - 1, -1 << 31, -1<<31 - 1, -1 << 63, 127, 128,
			1<<63 - 1}))
	genUint32 = rapid.Map(genUint64, func(v uint64) uint32 { return uint32(v) })
	genText   = rapid.Map(rapid.StringN(0, 300, 1024), func(s string) []byte { return []byte(s) })
	genKey    = rapid.Map(rapid.StringN(0, 128, 512), func(s string) []byte { return []byte(s) })
	genUUID   = rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) UUID { return UUID(b) })
	genDtype  = rapid.Map(rapid.Uint8Range(1, uint8(dtypes)-1), func(d uint8) Dtype { return Dtype(d) })
	genFormat = rapid.Map(rapid.Uint8Range(0, uint8(formats)-1), func(f uint8) Format { return Format(f) })
	genList   = rapid.SliceOfN(genUint64, 0, 40)

	genShape = rapid.Custom(func(t *rapid.T) (s Shape) {
		s.N = rapid.Uint8Range(0, ShapeRank).Draw(t, "rank")
		for i := range s.Dims[:s.N] {
			s.Dims[i] = genUint32.Draw(t, "dim")
		}
		return s
	})

	genSum = rapid.Map(genUint32, func(v uint32) uint64 { return uint64(v) })

	genAllocRequest = rapid.Custom(func(t *rapid.T) *AllocRequest {
		m := &AllocRequest{
			Keys:            rapid.SliceOfN(genKey, 0, 40).Draw(t, "keys"),
			Format:          genFormat.Draw(t, "fmt"),
			Shape:           genShape.Draw(t, "shape"),
			Dtype:           genDtype.Draw(t, "dtype"),
			LastChunkTokens: genUint32.Draw(t, "tokens"),
			WithAsync:       rapid.Bool().Draw(t, "async"),
			HasExt:          rapid.Bool().Draw(t, "ext"),
		}
		if m.WithAsync {
			m.RequestID = genText.Draw(t, "request")
			m.IsLastBatch = rapid.Bool().Draw(t, "last")
			m.TotalChunks = genUint32.Draw(t, "total")
		}
		if m.HasExt {
			m.Ext = AllocExt{
				Version:   genUint32.Draw(t, "version"),
				Operation: genUint64.Draw(t, "op"), Attempt: genUint32.Draw(t, "try"), PatienceNS: genUint64.Draw(t, "patience"),
				Request: genText.Draw(t, "req"), Commit: genList.Draw(t, "commit"), Abort: genList.Draw(t, "abort"),
				Code: genUint32.Draw(t, "code"), Reason: genText.Draw(t, "reason"),
				Layers: genUint32.Draw(t, "layers"), Epoch: genUint32.Draw(t, "epoch"), Opened: genUint64.Draw(t, "opened"),
				Carried: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "carried"),
				Trace:   rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "trace"),
			}
			m.Ext.Sums = drawSums(t, len(m.Keys))
			if rapid.Bool().Draw(t, "incarnations") {
				m.Ext.Incarnation, m.Ext.To = genUUID.Draw(t, "inc"), genUUID.Draw(t, "to")
			}
		}
		return m
	})

	genAllocResponse = rapid.Custom(func(t *rapid.T) *AllocResponse {
		m := &AllocResponse{
			Form:          rapid.SampledFrom([]ReplyForm{FormAscend, FormSync, FormAsync2}).Draw(t, "form"),
			AlreadySent:   rapid.SliceOfN(genInt64, 0, 40).Draw(t, "sent"),
			RemoteIndexes: rapid.SliceOfN(genInt64, 0, 40).Draw(t, "pages"),
			HasExt:        rapid.Bool().Draw(t, "ext"),
		}
		n := len(m.RemoteIndexes)
		if m.Form == FormAscend {
			m.RemoteUUIDs = rapid.SliceOfN(genUUID, n, n).Draw(t, "uuids")
			m.AllocFailed = rapid.Bool().Draw(t, "failed")
		} else {
			m.AllocFailed = hasNegative(m.RemoteIndexes)
		}
		if m.HasExt {
			m.Ext = AllocReplyExt{
				Version: genUint32.Draw(t, "version"), Grant: genUint64.Draw(t, "grant"), LeaseNS: genUint64.Draw(t, "lease"),
				Code: genUint32.Draw(t, "code"), RetryNS: genUint64.Draw(t, "retry"),
				Committed: genList.Draw(t, "committed"), Gone: genList.Draw(t, "gone"), Reason: genText.Draw(t, "reason"),
				Taken: genUint32.Draw(t, "taken"),
			}
			if rapid.Bool().Draw(t, "generations") {
				m.Ext.Generations = rapid.SliceOfN(genUint64, n, n).Draw(t, "gens")
			}
		}
		return m
	})

	genInstant = rapid.Map(genUint64, func(v uint64) int64 { return int64(v >> 1) })
	genPullID  = rapid.Map(genUUID, func(u UUID) PullID { return PullID(u) })
	genStamps  = rapid.Custom(func(t *rapid.T) Stamps {
		return Stamps{genInstant.Draw(t, "clock"), genInstant.Draw(t, "echo")}
	})

	genPullReady = rapid.Custom(func(t *rapid.T) *PullReadyNotif {
		n := rapid.IntRange(0, 40).Draw(t, "chunks")
		m := &PullReadyNotif{
			PullID:          genPullID.Draw(t, "id"),
			Keys:            rapid.SliceOfN(genKey, n, n).Draw(t, "keys"),
			SenderUUIDs:     rapid.SliceOfN(genUUID, n, n).Draw(t, "uuids"),
			SenderIndexes:   rapid.SliceOfN(genInt64, n, n).Draw(t, "pages"),
			SenderID:        genText.Draw(t, "sender"),
			SenderDoneURL:   genText.Draw(t, "url"),
			Format:          genFormat.Draw(t, "fmt"),
			Shape:           genShape.Draw(t, "shape"),
			Dtype:           genDtype.Draw(t, "dtype"),
			LastChunkTokens: genUint32.Draw(t, "tokens"),
			HasExt:          rapid.Bool().Draw(t, "ext"),
		}
		if m.HasExt {
			m.Ext = PullReadyExt{
				Version:   genUint32.Draw(t, "version"),
				Operation: genUint64.Draw(t, "op"), Attempt: genUint32.Draw(t, "try"), PatienceNS: genUint64.Draw(t, "patience"),
				Request: genText.Draw(t, "req"), Grant: genUint64.Draw(t, "grant"),
				GrantedNS: genInstant.Draw(t, "granted"), LeaseNS: genUint64.Draw(t, "lease"), Stamps: genStamps.Draw(t, "stamps"),
				Renew: genText.Draw(t, "renew"), Withdraw: rapid.SliceOfN(genPullID, 0, 40).Draw(t, "withdraw"),
				Code: genUint32.Draw(t, "code"), Reason: genText.Draw(t, "reason"),
				Trace: rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "trace"),
			}
			if rapid.Bool().Draw(t, "generations") {
				m.Ext.Generations = rapid.SliceOfN(genUint64, n, n).Draw(t, "gens")
			}
			m.Ext.Sums = drawSums(t, n)
			if rapid.Bool().Draw(t, "incarnations") {
				m.Ext.Incarnation, m.Ext.To = genUUID.Draw(t, "inc"), genUUID.Draw(t, "to")
			}
		}
		return m
	})

	genPullAck = rapid.Custom(func(t *rapid.T) *PullReadyDoneAck {
		m := &PullReadyDoneAck{
			AlreadySent: rapid.SliceOfN(genInt64, 0, 40).Draw(t, "sent"),
			AllocFailed: rapid.Bool().Draw(t, "failed"),
			HasExt:      rapid.Bool().Draw(t, "ext"),
		}
		if m.HasExt {
			m.Ext = PullAckExt{
				Version: genUint32.Draw(t, "version"), Incarnation: genUUID.Draw(t, "inc"), Code: genUint32.Draw(t, "code"),
				RetryNS: genUint64.Draw(t, "retry"), Stamps: genStamps.Draw(t, "stamps"), Delayed: rapid.Bool().Draw(t, "delayed"),
				Reason: genText.Draw(t, "reason"),
			}
		}
		return m
	})

	genPullDone = rapid.Custom(func(t *rapid.T) *PullDoneSignal {
		m := &PullDoneSignal{PullID: genPullID.Draw(t, "id"), HasExt: rapid.Bool().Draw(t, "ext")}
		if m.HasExt {
			m.Ext = PullDoneExt{
				Version: genUint32.Draw(t, "version"), Incarnation: genUUID.Draw(t, "inc"), To: genUUID.Draw(t, "to"),
				Grant: genUint64.Draw(t, "grant"), Code: genUint32.Draw(t, "code"), Missing: genUint32.Draw(t, "missing"),
				Reason: genText.Draw(t, "reason"),
			}
		}
		return m
	})

	genRenewRequest = rapid.Custom(func(t *rapid.T) *RenewRequest {
		return &RenewRequest{
			Version: genUint32.Draw(t, "version"), Incarnation: genUUID.Draw(t, "inc"), To: genUUID.Draw(t, "to"),
			Operation: genUint64.Draw(t, "op"), Grants: genList.Draw(t, "grants"), Done: genList.Draw(t, "done"),
			Stamps: genStamps.Draw(t, "stamps"),
		}
	})

	genRenewResponse = rapid.Custom(func(t *rapid.T) *RenewResponse {
		return &RenewResponse{
			Version: genUint32.Draw(t, "version"), Incarnation: genUUID.Draw(t, "inc"),
			Extended: genList.Draw(t, "extended"), LeaseNS: genUint64.Draw(t, "lease"), Gone: genList.Draw(t, "gone"),
			Done: genList.Draw(t, "done"), Stamps: genStamps.Draw(t, "stamps"),
		}
	})

	genEndRequest = rapid.Custom(func(t *rapid.T) *EndRequest {
		return &EndRequest{
			Version: genUint32.Draw(t, "version"), Incarnation: genUUID.Draw(t, "inc"), To: genUUID.Draw(t, "to"),
			Operation: genUint64.Draw(t, "op"), Request: genText.Draw(t, "req"), Code: genUint32.Draw(t, "code"),
			Reason: genText.Draw(t, "reason"),
		}
	})

	genEndResponse = rapid.Custom(func(t *rapid.T) *EndResponse {
		return &EndResponse{
			Version: genUint32.Draw(t, "version"), Code: genUint32.Draw(t, "code"), Reason: genText.Draw(t, "reason"),
		}
	})

	genCacheQuery = rapid.Custom(func(t *rapid.T) *CacheQueryRequest {
		m := &CacheQueryRequest{
			Keys: rapid.SliceOfN(genKey, 0, 40).Draw(t, "keys"), HasExt: rapid.Bool().Draw(t, "ext"),
		}
		if m.HasExt {
			m.Ext = CacheQueryExt{
				Version: genUint32.Draw(t, "version"), Incarnation: genUUID.Draw(t, "inc"), To: genUUID.Draw(t, "to"),
				Operation: genUint64.Draw(t, "op"), Attempt: genUint32.Draw(t, "try"),
				PatienceNS: genUint64.Draw(t, "patience"), Request: genText.Draw(t, "req"), Done: genList.Draw(t, "done"),
				Trace: genText.Draw(t, "trace"),
			}
		}
		return m
	})

	genCacheReply = rapid.Custom(func(t *rapid.T) *CacheQueryResponse {
		n := rapid.IntRange(0, 40).Draw(t, "chunks")
		m := &CacheQueryResponse{
			CachedKeys:    rapid.SliceOfN(genKey, n, n).Draw(t, "keys"),
			CachedIndexes: rapid.SliceOfN(genInt64, n, n).Draw(t, "pages"),
			HasExt:        rapid.Bool().Draw(t, "ext"),
		}
		if m.HasExt {
			m.Ext = CacheReplyExt{
				Version: genUint32.Draw(t, "version"), Incarnation: genUUID.Draw(t, "inc"), Grant: genUint64.Draw(t, "grant"),
				LeaseNS: genUint64.Draw(t, "lease"), Code: genUint32.Draw(t, "code"), RetryNS: genUint64.Draw(t, "retry"),
				Done: genList.Draw(t, "done"), Reason: genText.Draw(t, "reason"),
			}
			if rapid.Bool().Draw(t, "generations") {
				m.Ext.Generations = rapid.SliceOfN(genUint64, n, n).Draw(t, "gens")
			}
			if rapid.Bool().Draw(t, "lengths") {
				m.Ext.Lengths = rapid.SliceOfN(genUint64, n, n).Draw(t, "bytes")
			}
			m.Ext.Sums = drawSums(t, n)
		}
		return m
	})

	genHello = rapid.Custom(func(t *rapid.T) HelloExt {
		e := HelloExt{
			ProtoMin: genUint32.Draw(t, "min"), Incarnation: genUUID.Draw(t, "inc"), Caps: genUint64.Draw(t, "caps"),
			Window:    genUint32.Draw(t, "window"),
			Layers:    genUint32.Draw(t, "layers"),
			Carries:   genUint32.Draw(t, "carries"),
			PageBytes: genUint64.Draw(t, "page"), Code: genUint32.Draw(t, "code"), Reason: genText.Draw(t, "reason"),
			Planes: rapid.SliceOfN(genText, 0, 16).Draw(t, "planes"), Stamps: genStamps.Draw(t, "stamps"),
		}
		e.ProtoMax = rapid.Uint32Min(e.ProtoMin).Draw(t, "max")
		if rapid.Bool().Draw(t, "layout") {
			e.Layout = Layout{genFormat.Draw(t, "fmt"), genShape.Draw(t, "shape"), genDtype.Draw(t, "dtype")}
		}
		if n := len(e.Planes); rapid.Bool().Draw(t, "blobs") {
			e.Blobs = rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 400), n, n).Draw(t, "blobs")
		}
		return e
	})

	genBuffers = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) BufferInfo {
		return BufferInfo{
			UUID: genUUID.Draw(t, "uuid"), Ptr: genUint64.Draw(t, "ptr"), Size: genUint64.Draw(t, "size"),
			PageSize: genUint64.Draw(t, "page"), IsDevice: rapid.Bool().Draw(t, "device"),
		}
	}), 0, 20)

	genMessage = rapid.Custom(func(t *rapid.T) Message {
		switch tag := rapid.Uint8Range(1, uint8(tags)-1).Draw(t, "tag"); Tag(tag) {
		case TagAllocRequest:
			return genAllocRequest.Draw(t, "message")
		case TagAllocResponse, TagAscendAllocResponse:
			return genAllocResponse.Draw(t, "message")
		case TagProxyNotif:
			m := &ProxyNotif{RequestID: genText.Draw(t, "request"), HasExt: rapid.Bool().Draw(t, "ext")}
			if m.HasExt {
				m.Failed, m.Rank = genUint32.Draw(t, "failed"), genUint32.Draw(t, "rank")
			}
			return m
		case TagHixlInitRequest:
			m := &HixlInitRequest{LocalID: genText.Draw(t, "local"), EngineID: genText.Draw(t, "engine"),
				HasExt: rapid.Bool().Draw(t, "ext")}
			if m.HasExt {
				m.Ext = genHello.Draw(t, "hello")
			}
			return m
		case TagHixlInitResponse:
			m := &HixlInitResponse{EngineID: genText.Draw(t, "engine"), HasExt: rapid.Bool().Draw(t, "ext")}
			if m.HasExt {
				m.Ext = genHello.Draw(t, "hello")
			}
			return m
		case TagHixlReadyRequest:
			return &HixlReadyRequest{LocalID: genText.Draw(t, "local")}
		case TagHixlReadyResponse:
			return &HixlReadyResponse{
				OK: rapid.Bool().Draw(t, "ok"), Code: genUint32.Draw(t, "code"), Reason: genText.Draw(t, "reason"),
			}
		case TagHixlMemInfoRequest:
			m := &HixlMemInfoRequest{LocalID: genText.Draw(t, "local"), Buffers: genBuffers.Draw(t, "buffers"),
				HasExt: rapid.Bool().Draw(t, "ext")}
			if m.HasExt {
				m.Stamps = genStamps.Draw(t, "stamps")
				m.Planes = rapid.SliceOfN(genText, 0, 16).Draw(t, "planes")
				if n := len(m.Planes); rapid.Bool().Draw(t, "blobs") {
					m.Blobs = rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 400), n, n).Draw(t, "blobs")
				}
			}
			return m
		case TagHixlMemInfoResponse:
			m := &HixlMemInfoResponse{Buffers: genBuffers.Draw(t, "buffers"), HasExt: rapid.Bool().Draw(t, "ext")}
			if m.HasExt {
				m.Stamps = genStamps.Draw(t, "stamps")
			}
			return m
		case TagPullReadyNotif:
			return genPullReady.Draw(t, "message")
		case TagPullReadyDoneAck:
			return genPullAck.Draw(t, "message")
		case TagPullDoneSignal:
			return genPullDone.Draw(t, "message")
		case TagRenewRequest:
			return genRenewRequest.Draw(t, "message")
		case TagRenewResponse:
			return genRenewResponse.Draw(t, "message")
		case TagEndRequest:
			return genEndRequest.Draw(t, "message")
		case TagEndResponse:
			return genEndResponse.Draw(t, "message")
		case TagCacheQueryRequest:
			return genCacheQuery.Draw(t, "message")
		case TagCacheQueryResponse:
			return genCacheReply.Draw(t, "message")
		default:
			return genShare(t, Tag(tag))
		}
	})
)

// drawSums draws a checksum for each of n chunks, or none.
func drawSums(t *rapid.T, n int) []uint64 {
	if !rapid.Bool().Draw(t, "with sums") {
		return nil
	}
	return rapid.SliceOfN(genSum, n, n).Draw(t, "sums")
}
