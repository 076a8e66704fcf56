package protocol

import "pgregory.net/rapid"

// Generators of messages between peers, and between a worker and its controller.

var (
	genHash = rapid.Custom(func(t *rapid.T) ChunkHash {
		if v := genInt64.Draw(t, "signed"); v < 0 {
			return ChunkHash{uint64(v), true}
		}
		return ChunkHash{Bits: genUint64.Draw(t, "unsigned")}
	})
	genHashes  = rapid.SliceOfN(genHash, 0, 40)
	genSeconds = rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 0.1, 60, 360}))
	genWorker  = rapid.Custom(func(t *rapid.T) Worker {
		return Worker{genText.Draw(t, "instance"), genUint32.Draw(t, "worker")}
	})
	genListener = rapid.Custom(func(t *rapid.T) Listener {
		return Listener{genText.Draw(t, "ip"), uint16(genUint64.Draw(t, "port"))}
	})
	genMaybeUUID = rapid.OneOf(rapid.Just(UUID{}), genUUID)

	genP2PGet = rapid.Custom(func(t *rapid.T) *AscendBatchedLookupAndGetMsg {
		keys, pull := rapid.IntRange(0, 40).Draw(t, "chunks"), rapid.Bool().Draw(t, "pull")
		pages := keys
		if pull {
			pages = rapid.IntRange(0, 40).Draw(t, "pages")
		}
		m := &AscendBatchedLookupAndGetMsg{
			LookupID: genText.Draw(t, "lookup"), ReceiverID: genText.Draw(t, "receiver"),
			Keys:        rapid.SliceOfN(genKey, keys, keys).Draw(t, "keys"),
			MemIndexes:  rapid.SliceOfN(genInt64, pages, pages).Draw(t, "indexes"),
			BufferUUIDs: rapid.SliceOfN(genUUID, pages, pages).Draw(t, "uuids"),
			PullMode:    pull, HasExt: rapid.Bool().Draw(t, "ext"),
		}
		if m.HasExt {
			m.Ext = P2PGetExt{
				Version: genUint32.Draw(t, "version"), Incarnation: genUUID.Draw(t, "inc"), To: genMaybeUUID.Draw(t, "to"),
				Operation: genUint64.Draw(t, "op"), Attempt: genUint32.Draw(t, "try"),
				PatienceNS: genUint64.Draw(t, "patience"), Grant: genUint64.Draw(t, "grant"),
				GrantedNS: genInstant.Draw(t, "granted"), LeaseNS: genUint64.Draw(t, "lease"), Stamps: genStamps.Draw(t, "stamps"),
				Trace: genText.Draw(t, "trace"),
			}
			if rapid.Bool().Draw(t, "generations") {
				m.Ext.Generations = rapid.SliceOfN(genUint64, pages, pages).Draw(t, "gens")
			}
		}
		return m
	})

	genP2PGetReply = rapid.Custom(func(t *rapid.T) *AscendBatchedLookupAndGetRetMsg {
		m := &AscendBatchedLookupAndGetRetMsg{
			HitChunks: genUint32.Draw(t, "hits"), LeaseSeconds: genSeconds.Draw(t, "lease"), HasExt: rapid.Bool().Draw(t, "ext"),
		}
		pages := 0
		if rapid.Bool().Draw(t, "pull") {
			pages = rapid.IntRange(0, 40).Draw(t, "pages")
			m.HitChunks = uint32(pages)
			m.RemoteIndexes = rapid.SliceOfN(genInt64, pages, pages).Draw(t, "indexes")
			m.RemoteUUIDs = rapid.SliceOfN(genUUID, pages, pages).Draw(t, "uuids")
		}
		if m.HasExt {
			m.Ext = P2PGetReplyExt{
				Version: genUint32.Draw(t, "version"), Incarnation: genMaybeUUID.Draw(t, "inc"), Grant: genUint64.Draw(t, "grant"),
				Code: genUint32.Draw(t, "code"), RetryNS: genUint64.Draw(t, "retry"), Reason: genText.Draw(t, "reason"),
				Stamps: genStamps.Draw(t, "stamps"),
			}
			if rapid.Bool().Draw(t, "generations") {
				m.Ext.Generations = rapid.SliceOfN(genUint64, pages, pages).Draw(t, "gens")
			}
			m.Ext.Sums = drawSums(t, pages)
		}
		return m
	})

	genP2PDone = rapid.Custom(func(t *rapid.T) *AscendBatchedLookupAndGetDoneMsg {
		m := &AscendBatchedLookupAndGetDoneMsg{LookupID: genText.Draw(t, "lookup"), HasExt: rapid.Bool().Draw(t, "ext")}
		if m.HasExt {
			m.Ext = P2PDoneExt{
				Version: genUint32.Draw(t, "version"), Incarnation: genMaybeUUID.Draw(t, "inc"), To: genMaybeUUID.Draw(t, "to"),
				Operation: genUint64.Draw(t, "op"), Attempt: genUint32.Draw(t, "try"), Grant: genUint64.Draw(t, "grant"),
			}
		}
		return m
	})

	genPut = rapid.Custom(func(t *rapid.T) BatchedLookupAndPutMsg {
		n := rapid.IntRange(0, 40).Draw(t, "chunks")
		return BatchedLookupAndPutMsg{
			SenderID: genText.Draw(t, "sender"), Keys: rapid.SliceOfN(genKey, n, n).Draw(t, "keys"),
			Offsets:    rapid.SliceOfN(genInt64, n, n).Draw(t, "offsets"),
			MemIndexes: rapid.SliceOfN(genInt64, n, n).Draw(t, "indexes"),
		}
	})

	genHolder = rapid.Custom(func(t *rapid.T) Holder {
		return Holder{
			InstanceID: rapid.Map(rapid.StringN(1, 300, 1024), func(s string) []byte { return []byte(s) }).Draw(t, "instance"),
			Location:   genText.Draw(t, "location"),
			HitChunks:  max(1, genUint32.Draw(t, "hits")), PeerInitURL: genText.Draw(t, "url"),
		}
	})
	genOperation = rapid.Custom(func(t *rapid.T) KVOperation {
		return KVOperation{OpType(rapid.IntRange(0, int(opTypes)-1).Draw(t, "type")), genHash.Draw(t, "key"),
			genUint64.Draw(t, "seq")}
	})
	genCommand = rapid.Custom(func(t *rapid.T) Command {
		return Command{
			Type:   CommandType(rapid.IntRange(0, int(commandTypes)-1).Draw(t, "type")),
			Reason: genText.Draw(t, "reason"),
		}
	})
	genRegister = rapid.Custom(func(t *rapid.T) RegisterMsg {
		return RegisterMsg{
			Worker: genWorker.Draw(t, "worker"), Listener: genListener.Draw(t, "listener"),
			PeerInitURL: genText.Draw(t, "url"), Incarnation: genMaybeUUID.Draw(t, "inc"),
		}
	})
	genAdmit = rapid.Custom(func(t *rapid.T) KVAdmitMsg {
		return KVAdmitMsg{genWorker.Draw(t, "worker"), genHash.Draw(t, "key"), genText.Draw(t, "location"),
			genUint64.Draw(t, "seq")}
	})
)

// genShare draws a message that is not of FamilyPD.
func genShare(t *rapid.T, tag Tag) Message {
	if tag.Family() == FamilyAgent {
		return genAgent(t, tag)
	}
	if tag.isWorkerControl() {
		return &WorkerControlMsg{Kind: tag, EventID: genText.Draw(t, "event")}
	}
	switch tag {
	case TagAscendBatchedLookupAndGetMsg:
		return genP2PGet.Draw(t, "message")
	case TagAscendBatchedLookupAndGetRetMsg:
		return genP2PGetReply.Draw(t, "message")
	case TagAscendBatchedLookupAndGetDoneMsg:
		return genP2PDone.Draw(t, "message")
	case TagAscendQueryDonePortRetMsg:
		return &AscendQueryDonePortRetMsg{genText.Draw(t, "url")}
	case TagAscendBatchedLookupAndPutMsg:
		m := &AscendBatchedLookupAndPutMsg{BatchedLookupAndPutMsg: genPut.Draw(t, "put")}
		if n := len(m.Keys); rapid.Bool().Draw(t, "buffers") {
			m.BufferUUIDs = rapid.SliceOfN(genUUID, n, n).Draw(t, "uuids")
		}
		return m
	case TagBatchedLookupAndGetMsg:
		p := genPut.Draw(t, "get")
		return &BatchedLookupAndGetMsg{genText.Draw(t, "lookup"), p.SenderID, p.Keys, p.MemIndexes}
	case TagBatchedLookupAndGetRetMsg:
		return &BatchedLookupAndGetRetMsg{genUint32.Draw(t, "hits")}
	case TagBatchedLookupAndPutMsg:
		m := genPut.Draw(t, "message")
		return &m
	case TagBatchedLookupAndPutRetMsg:
		return &BatchedLookupAndPutRetMsg{genUint32.Draw(t, "read")}
	case TagP2PErrorMsg:
		return &P2PErrorMsg{P2PErrorCode(rapid.IntRange(1, int(p2pErrorCodes)-1).Draw(t, "code"))}
	case TagP2PInitSideRetMsg:
		return &P2PInitSideRetMsg{genText.Draw(t, "url")}
	case TagRegisterMsg:
		m := genRegister.Draw(t, "message")
		return &m
	case TagRegisterRetMsg:
		return &RegisterRetMsg{ExtraConfig{genText.Draw(t, "url")}, rapid.Uint64().Draw(t, "silence")}
	case TagDeRegisterMsg:
		m := genRegister.Draw(t, "message")
		return &DeRegisterMsg{m.Worker, m.Listener, m.Incarnation}
	case TagHeartbeatMsg:
		m := HeartbeatMsg(genRegister.Draw(t, "message"))
		return &m
	case TagHeartbeatRetMsg:
		return &HeartbeatRetMsg{rapid.SliceOfN(genCommand, 0, 16).Draw(t, "commands"), rapid.Uint64().Draw(t, "silence")}
	case TagBatchedP2PLookupMsg:
		return &BatchedP2PLookupMsg{genHashes.Draw(t, "hashes"), genWorker.Draw(t, "worker")}
	case TagBatchedP2PLookupRetMsg:
		return &BatchedP2PLookupRetMsg{rapid.SliceOfN(genHolder, 0, 20).Draw(t, "holders")}
	case TagKVAdmitMsg:
		m := genAdmit.Draw(t, "message")
		return &m
	case TagKVEvictMsg:
		m := KVEvictMsg(genAdmit.Draw(t, "message"))
		return &m
	case TagBatchedKVOperationMsg:
		return &BatchedKVOperationMsg{
			genWorker.Draw(t, "worker"), genText.Draw(t, "location"),
			rapid.SliceOfN(genOperation, 0, 40).Draw(t, "operations"), genMaybeUUID.Draw(t, "inc"),
		}
	case TagFullSyncStartRetMsg:
		return &FullSyncStartRetMsg{genText.Draw(t, "sync"), rapid.Bool().Draw(t, "accepted"), genText.Draw(t, "error")}
	case TagFullSyncStatusMsg:
		return &FullSyncStatusMsg{genWorker.Draw(t, "worker"), genText.Draw(t, "sync")}
	case TagFullSyncStatusRetMsg:
		return &FullSyncStatusRetMsg{
			genText.Draw(t, "sync"), rapid.Bool().Draw(t, "complete"), genSeconds.Draw(t, "progress"),
			rapid.Bool().Draw(t, "exit"), rapid.SliceOfN(genInt64, 0, 40).Draw(t, "missing"),
		}
	case TagErrorMsg:
		return &ErrorMsg{genText.Draw(t, "error")}
	case TagFullSyncStartMsg, TagFullSyncBatchMsg, TagFullSyncEndMsg:
		return genSync(t, tag)
	case TagAscendBatchedLookupAndGetDoneRetMsg, TagAscendQueryDonePortMsg, TagP2PInitSideMsg:
		return NewMessage(tag)
	}
	panic("no generator for " + tag.String())
}

func genSync(t *rapid.T, tag Tag) Message {
	w, location, id := genWorker.Draw(t, "worker"), genText.Draw(t, "location"), genText.Draw(t, "sync")
	n, inc := genUint64.Draw(t, "number"), genMaybeUUID.Draw(t, "inc")
	switch tag {
	case TagFullSyncStartMsg:
		m := &FullSyncStartMsg{w, location, id, n, genUint32.Draw(t, "batches"), inc, 0, rapid.Bool().Draw(t, "numbered")}
		if m.Numbered {
			m.Next = min(genUint64.Draw(t, "next"), 1<<64-2)
		}
		return m
	case TagFullSyncBatchMsg:
		return &FullSyncBatchMsg{w, location, id, uint32(n), genHashes.Draw(t, "keys"), inc}
	default:
		return &FullSyncEndMsg{w, location, id, n, inc}
	}
}
