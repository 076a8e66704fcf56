package protocol

// A Message is one of this package's messages. Machines use the concrete types; this is for code
// that treats all alike, such as tools and tests.
type Message interface {
	// Append appends the message to b. It allocates only what b lacks.
	Append(b []byte) []byte
	// Decode replaces the message by what b holds, or returns a *DecodeError. A nil lim stands
	// for DefaultLimits.
	Decode(b []byte, lim *Limits) error
}

// NewMessage returns an empty message of the kind that t names, or nil if t is no known tag. Both
// tags of an AllocResponse give the same type, in the tag's form.
func NewMessage(t Tag) Message {
	switch t {
	case TagAllocRequest:
		return new(AllocRequest)
	case TagAllocResponse:
		return &AllocResponse{Form: FormSync}
	case TagAscendAllocResponse:
		return &AllocResponse{Form: FormAscend}
	case TagProxyNotif:
		return new(ProxyNotif)
	case TagPullReadyNotif:
		return new(PullReadyNotif)
	case TagPullReadyDoneAck:
		return new(PullReadyDoneAck)
	case TagPullDoneSignal:
		return new(PullDoneSignal)
	case TagHixlInitRequest:
		return new(HixlInitRequest)
	case TagHixlInitResponse:
		return new(HixlInitResponse)
	case TagHixlReadyRequest:
		return new(HixlReadyRequest)
	case TagHixlReadyResponse:
		return new(HixlReadyResponse)
	case TagHixlMemInfoRequest:
		return new(HixlMemInfoRequest)
	case TagHixlMemInfoResponse:
		return new(HixlMemInfoResponse)
	case TagRenewRequest:
		return new(RenewRequest)
	case TagRenewResponse:
		return new(RenewResponse)
	case TagEndRequest:
		return new(EndRequest)
	case TagEndResponse:
		return new(EndResponse)
	case TagCacheQueryRequest:
		return new(CacheQueryRequest)
	case TagCacheQueryResponse:
		return new(CacheQueryResponse)
	case TagAscendBatchedLookupAndGetMsg:
		return new(AscendBatchedLookupAndGetMsg)
	case TagAscendBatchedLookupAndGetRetMsg:
		return new(AscendBatchedLookupAndGetRetMsg)
	case TagAscendBatchedLookupAndGetDoneMsg:
		return new(AscendBatchedLookupAndGetDoneMsg)
	case TagAscendBatchedLookupAndGetDoneRetMsg:
		return new(AscendBatchedLookupAndGetDoneRetMsg)
	case TagAscendQueryDonePortMsg:
		return new(AscendQueryDonePortMsg)
	case TagAscendQueryDonePortRetMsg:
		return new(AscendQueryDonePortRetMsg)
	case TagAscendBatchedLookupAndPutMsg:
		return new(AscendBatchedLookupAndPutMsg)
	case TagBatchedLookupAndGetMsg:
		return new(BatchedLookupAndGetMsg)
	case TagBatchedLookupAndGetRetMsg:
		return new(BatchedLookupAndGetRetMsg)
	case TagBatchedLookupAndPutMsg:
		return new(BatchedLookupAndPutMsg)
	case TagBatchedLookupAndPutRetMsg:
		return new(BatchedLookupAndPutRetMsg)
	case TagP2PErrorMsg:
		return new(P2PErrorMsg)
	case TagP2PInitSideMsg:
		return new(P2PInitSideMsg)
	case TagP2PInitSideRetMsg:
		return new(P2PInitSideRetMsg)
	case TagRegisterMsg:
		return new(RegisterMsg)
	case TagRegisterRetMsg:
		return new(RegisterRetMsg)
	case TagDeRegisterMsg:
		return new(DeRegisterMsg)
	case TagHeartbeatMsg:
		return new(HeartbeatMsg)
	case TagHeartbeatRetMsg:
		return new(HeartbeatRetMsg)
	case TagBatchedP2PLookupMsg:
		return new(BatchedP2PLookupMsg)
	case TagBatchedP2PLookupRetMsg:
		return new(BatchedP2PLookupRetMsg)
	case TagKVAdmitMsg:
		return new(KVAdmitMsg)
	case TagKVEvictMsg:
		return new(KVEvictMsg)
	case TagBatchedKVOperationMsg:
		return new(BatchedKVOperationMsg)
	case TagFullSyncStartMsg:
		return new(FullSyncStartMsg)
	case TagFullSyncStartRetMsg:
		return new(FullSyncStartRetMsg)
	case TagFullSyncBatchMsg:
		return new(FullSyncBatchMsg)
	case TagFullSyncEndMsg:
		return new(FullSyncEndMsg)
	case TagFullSyncStatusMsg:
		return new(FullSyncStatusMsg)
	case TagFullSyncStatusRetMsg:
		return new(FullSyncStatusRetMsg)
	case TagErrorMsg:
		return new(ErrorMsg)
	case TagClearWorkerMsg, TagPinWorkerMsg, TagCompressWorkerMsg, TagDecompressWorkerMsg, TagMoveWorkerMsg,
		TagHealthWorkerMsg, TagCheckFinishWorkerMsg:
		return &WorkerControlMsg{Kind: t}
	case TagAttachRequest:
		return new(AttachRequest)
	case TagAttachResponse:
		return new(AttachResponse)
	case TagEngineCall:
		return new(EngineCall)
	case TagEngineAnswer:
		return new(EngineAnswer)
	case TagEngineShow:
		return new(EngineShow)
	case TagEngineShown:
		return new(EngineShown)
	case TagEngineReturned:
		return new(EngineReturned)
	case TagNone, tags:
	}
	return nil
}

// schemas holds what each message declares.
var schemas = [tags]*schema{
	TagAllocRequest:        &allocRequestSchema,
	TagAllocResponse:       &upstreamReplySchema,
	TagAscendAllocResponse: &ascendReplySchema,
	TagProxyNotif:          &proxyNotifSchema,
	TagPullReadyNotif:      &pullReadySchema,
	TagPullReadyDoneAck:    &pullAckSchema,
	TagPullDoneSignal:      &pullDoneSchema,
	TagHixlInitRequest:     &initRequestSchema,
	TagHixlInitResponse:    &initResponseSchema,
	TagHixlReadyRequest:    &readyRequestSchema,
	TagHixlReadyResponse:   &readyResponseSchema,
	TagHixlMemInfoRequest:  &memInfoRequestSchema,
	TagHixlMemInfoResponse: &memInfoResponseSchema,
	TagRenewRequest:        &renewRequestSchema,
	TagRenewResponse:       &renewResponseSchema,
	TagEndRequest:          &endRequestSchema,
	TagEndResponse:         &endResponseSchema,
	TagCacheQueryRequest:   &cacheQuerySchema,
	TagCacheQueryResponse:  &cacheReplySchema,

	TagAscendBatchedLookupAndGetMsg:        &p2pGetSchema,
	TagAscendBatchedLookupAndGetRetMsg:     &p2pGetReplySchema,
	TagAscendBatchedLookupAndGetDoneMsg:    &p2pDoneSchema,
	TagAscendBatchedLookupAndGetDoneRetMsg: &p2pDoneReplySchema,
	TagAscendQueryDonePortMsg:              &donePortSchema,
	TagAscendQueryDonePortRetMsg:           &donePortReplySchema,
	TagAscendBatchedLookupAndPutMsg:        &p2pPutSchema,
	TagBatchedLookupAndGetMsg:              &upstreamGetSchema,
	TagBatchedLookupAndGetRetMsg:           &upstreamGetReplySchema,
	TagBatchedLookupAndPutMsg:              &upstreamPutSchema,
	TagBatchedLookupAndPutRetMsg:           &putReplySchema,
	TagP2PErrorMsg:                         &p2pErrorSchema,
	TagP2PInitSideMsg:                      &initSideSchema,
	TagP2PInitSideRetMsg:                   &initSideReplySchema,
	TagRegisterMsg:                         &registerSchema,
	TagRegisterRetMsg:                      &registerRetSchema,
	TagDeRegisterMsg:                       &deregisterSchema,
	TagHeartbeatMsg:                        &heartbeatSchema,
	TagHeartbeatRetMsg:                     &heartbeatRetSchema,
	TagBatchedP2PLookupMsg:                 &lookupSchema,
	TagBatchedP2PLookupRetMsg:              &lookupRetSchema,
	TagKVAdmitMsg:                          &admitSchema,
	TagKVEvictMsg:                          &evictSchema,
	TagBatchedKVOperationMsg:               &batchSchema,
	TagFullSyncStartMsg:                    &syncStartSchema,
	TagFullSyncStartRetMsg:                 &syncStartRetSchema,
	TagFullSyncBatchMsg:                    &syncBatchSchema,
	TagFullSyncEndMsg:                      &syncEndSchema,
	TagFullSyncStatusMsg:                   &syncStatusSchema,
	TagFullSyncStatusRetMsg:                &syncStatusRetSchema,
	TagErrorMsg:                            &errorSchema,
	TagClearWorkerMsg:                      &controlSchemas[0],
	TagPinWorkerMsg:                        &controlSchemas[1],
	TagCompressWorkerMsg:                   &controlSchemas[2],
	TagDecompressWorkerMsg:                 &controlSchemas[3],
	TagMoveWorkerMsg:                       &controlSchemas[4],
	TagHealthWorkerMsg:                     &controlSchemas[5],
	TagCheckFinishWorkerMsg:                &controlSchemas[6],

	TagAttachRequest: &attachRequestSchema, TagAttachResponse: &attachResponseSchema,
	TagEngineCall: &engineCallSchema, TagEngineAnswer: &engineAnswerSchema, TagEngineReturned: &engineReturnedSchema,
	TagEngineShow: &engineShowSchema, TagEngineShown: &engineShownSchema,
}
