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
	case TagCacheQueryRequest:
		return new(CacheQueryRequest)
	case TagCacheQueryResponse:
		return new(CacheQueryResponse)
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
	TagCacheQueryRequest:   &cacheQuerySchema,
	TagCacheQueryResponse:  &cacheReplySchema,
}
