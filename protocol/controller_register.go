package protocol

// A RegisterMsg makes a worker known to its controller, on the controller's reply socket. What the controller knew of
// the same worker is over: operations count from 0 again, or from a full sync.
type RegisterMsg struct {
	Worker
	Listener
	PeerInitURL []byte // host:port of its init socket, by which peers name it; empty: it does not share
	Incarnation UUID   // kvf_inc: the worker's; zero is unsaid
}

// A RegisterRetMsg answers it.
type RegisterRetMsg struct {
	HeartbeatURL []byte // extra_config.heartbeat_url: host:port of the heartbeat socket; empty: there is none
	SilenceNS    uint64 // kvf_silence_ns: after that long without a heartbeat the worker is forgotten; 0 is unsaid
}

// A DeRegisterMsg ends what a RegisterMsg began. It is not answered.
type DeRegisterMsg struct {
	Worker
	Listener
	Incarnation UUID // kvf_inc: the worker's; zero is unsaid
}

// Fields of RegisterMsg and of HeartbeatMsg.
const (
	_              = iota // the tag
	registerWorker        // the first field of Worker
	_
	registerListener // the first field of Listener
	_
	registerURL
	registerIncarnation
)

// Fields of DeRegisterMsg; the first are those of RegisterMsg.
const deregisterIncarnation = registerURL

var registerNames = []string{tagField, "instance_id", "worker_id", "ip", "port", "peer_init_url", "kvf_inc"}

// Fields of RegisterRetMsg.
const (
	_ = iota
	registerRetExtra
	registerRetSilence
)

var registerRetNames = []string{tagField, "extra_config", "kvf_silence_ns"}

var (
	registerSchema = schema{
		name:     "RegisterMsg",
		tagged:   true,
		names:    registerNames,
		required: 1<<registerIncarnation - 1<<registerWorker,
	}
	registerRetSchema = schema{name: "RegisterRetMsg", tagged: true, names: registerRetNames}
	extraConfigSchema = schema{name: "RegisterRetMsg", names: []string{"heartbeat_url"}}
	deregisterSchema  = schema{
		name:     "DeRegisterMsg",
		tagged:   true,
		names:    []string{tagField, "instance_id", "worker_id", "ip", "port", "kvf_inc"},
		required: 1<<deregisterIncarnation - 1<<registerWorker,
	}
)

// Append appends the message to b.
func (m *RegisterMsg) Append(b []byte) []byte { return m.append(b, TagRegisterMsg) }

func (m *RegisterMsg) append(b []byte, tag Tag) []byte {
	b = appendTag(b, tag, 5+ones(m.Incarnation != UUID{}))
	b = m.appendListener(m.appendWorker(b))
	b = appendTextOrNil(appendStr(b, "peer_init_url"), m.PeerInitURL)
	return appendNonZeroUUID(b, "kvf_inc", m.Incarnation)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *RegisterMsg) Decode(b []byte, lim *Limits) error {
	return m.decode(b, lim, TagRegisterMsg, &registerSchema)
}

func (m *RegisterMsg) decode(b []byte, lim *Limits, tag Tag, s *schema) error {
	*m = RegisterMsg{}
	r, from := openEither(b, lim)
	r.expectTag(tag)
	w := fields{r: &r, schema: s, depth: 2}
	for w.open(); w.next(); {
		switch {
		case w.at < registerListener:
			m.decodeWorker(&r, w.at-registerWorker)
		case w.at < registerURL:
			m.decodeListener(&r, w.at-registerListener)
		case w.at == registerURL:
			m.PeerInitURL = r.textOrNil()
		default:
			m.Incarnation = r.uuid()
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

// Append appends the message to b.
func (m *DeRegisterMsg) Append(b []byte) []byte {
	b = appendTag(b, TagDeRegisterMsg, 4+ones(m.Incarnation != UUID{}))
	return appendNonZeroUUID(m.appendListener(m.appendWorker(b)), "kvf_inc", m.Incarnation)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *DeRegisterMsg) Decode(b []byte, lim *Limits) error {
	*m = DeRegisterMsg{}
	r, from := openEither(b, lim)
	r.expectTag(TagDeRegisterMsg)
	w := fields{r: &r, schema: &deregisterSchema, depth: 2}
	for w.open(); w.next(); {
		switch {
		case w.at < registerListener:
			m.decodeWorker(&r, w.at-registerWorker)
		case w.at < deregisterIncarnation:
			m.decodeListener(&r, w.at-registerListener)
		default:
			m.Incarnation = r.uuid()
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

// Append appends the message to b.
func (m *RegisterRetMsg) Append(b []byte) []byte {
	b = appendTag(b, TagRegisterRetMsg, 1+ones(m.SilenceNS != 0))
	b = appendMapHeader(appendStr(b, "extra_config"), ones(len(m.HeartbeatURL) > 0))
	b = appendNonEmptyText(b, "heartbeat_url", m.HeartbeatURL)
	return appendNonZero(b, "kvf_silence_ns", m.SilenceNS)
}

// Decode fills m from b, which may be JSON; HeartbeatURL is a view. Of extra_config nothing else is looked at. The
// error is a *DecodeError.
func (m *RegisterRetMsg) Decode(b []byte, lim *Limits) error {
	*m = RegisterRetMsg{}
	r, from := openEither(b, lim)
	r.expectTag(TagRegisterRetMsg)
	w := fields{r: &r, schema: &registerRetSchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == registerRetSilence {
			m.SilenceNS = r.uint64()
			continue
		}
		extra := fields{r: &r, schema: &extraConfigSchema, depth: 3}
		for extra.open(); extra.next(); {
			m.HeartbeatURL = r.text()
		}
		extra.close()
	}
	w.close()
	r.end()
	return from.result(&r)
}
