package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/runtime/span"
)

// Config says what a Proxy serves. Defaults fills in all limits.
type Config struct {
	Address  string // to listen at, host:port
	Prefills []*url.URL
	Decodes  []DecodeEngine

	// Cert and Key are the PEM files of the certificate that the proxy shows to clients, and are read again when they
	// change. If both are empty, clients connect without TLS. EngineCA is a PEM file with the authorities of the
	// certificates of engines with https addresses; if empty, the authorities that the system trusts.
	Cert, Key, EngineCA string
	// APIKeys is a YAML file with the SHA-256 of the keys by which clients are known, and the cache_salt of the requests of
	// each. It is read again when it changes. If empty, clients need no key, and cache_salt is theirs to choose.
	APIKeys string
	// Tracer takes the spans of traced requests. If nil, the proxy passes traceparent and tracestate on, and has no spans.
	Tracer span.Tracer
	// EngineKey is a file with the key that engines get instead of the client's. If empty, engines get the client's.
	EngineKey string

	// MaxConnections bounds the client connections, and MaxRequests the requests in flight. Zero means as many as fit
	// into the files that the process may open, and at most 4096 and 2048. A client address may have as many requests
	// as remain free for further clients: half of all requests if there is a single client address.
	MaxConnections int
	MaxRequests    int
	MaxBodyBytes   int64 // largest body of a request
	// MaxTotalBytes bounds the bodies of all requests in flight, which take up to twice that in memory. A client
	// address may have as many bytes as remain free for further clients, and a single body in any case.
	MaxTotalBytes int64

	ReadTimeout    time.Duration // for receiving a whole request
	WriteTimeout   time.Duration // how long a client may hold up its answer; bytes that were read earn more time
	PrefillTimeout time.Duration // for the prefill engine's answer
	Timeout        time.Duration // for a whole request
	SilenceTimeout time.Duration // time without output of a decode engine with requests, before a health check
	RestTime       time.Duration // how long a failed engine is left out, longer each time; 0: never

	Log *slog.Logger // nil: no log
}

// Defaults returns limits to start from, without engines.
func Defaults() Config {
	return Config{Address: "127.0.0.1:8000", MaxBodyBytes: 8 << 20, MaxTotalBytes: 256 << 20,
		ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, PrefillTimeout: 30 * time.Second,
		Timeout: 10 * time.Minute, SilenceTimeout: 10 * time.Second, RestTime: 5 * time.Second}
}

// A DecodeEngine is a decode engine and the agents that receive for this engine, with an agent for each rank.
type DecodeEngine struct {
	URL        *url.URL
	Host       string // host of the agents, as the prefill engines' agents reach it
	InitPorts  []uint16
	AllocPorts []uint16
}

// ParseEngine parses the address of an engine, such as http://10.0.0.1:8000.
func ParseEngine(text string) (*url.URL, error) {
	if err := checkNoUser(text); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" ||
		u.Fragment != "" {
		return nil, fmt.Errorf("engine %q: give the address of the engine, such as http://10.0.0.1:8000", text)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// checkNoUser refuses an engine address with a user. There may be a password, so the error shows only the text after
// the user.
func checkNoUser(text string) error {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		return fmt.Errorf("engine ...%s: the address has a user before the @, but the proxy cannot sign in to an engine; give the address "+
			"without a user, such as http://10.0.0.1:8000", text[at:])
	}
	return nil
}

// ParseDecode parses a decode engine and its agents, such as http://10.0.0.2:8000=10.0.0.2:7300:7400. The host and the
// ports are pd_peer_host, pd_peer_init_port and pd_peer_alloc_port of the agents' configuration. Several ranks have
// lists of ports with commas.
func ParseDecode(text string) (DecodeEngine, error) {
	if err := checkNoUser(text); err != nil {
		return DecodeEngine{}, err
	}
	engine, agents, ok := strings.Cut(text, "=")
	u, err := ParseEngine(engine)
	if err != nil {
		return DecodeEngine{}, err
	}
	wrong := func(why string) (DecodeEngine, error) {
		return DecodeEngine{}, fmt.Errorf("decode %q: %s; give the address of the engine and the host and ports of its agents, such as "+
			"http://10.0.0.2:8000=10.0.0.2:7300:7400, with commas between the ports of several ranks", text, why)
	}
	if !ok {
		return wrong("the agents are missing")
	}
	at := strings.LastIndexByte(agents, ':')
	if at < 0 {
		return wrong("the ports are missing")
	}
	host, init, err := net.SplitHostPort(agents[:at])
	if err != nil || host == "" {
		return wrong("the agents must be given as host:port:port")
	}
	d := DecodeEngine{URL: u, Host: host}
	for _, list := range []struct {
		text string
		to   *[]uint16
	}{{init, &d.InitPorts}, {agents[at+1:], &d.AllocPorts}} {
		for one := range strings.SplitSeq(list.text, ",") {
			port, err := strconv.ParseUint(one, 10, 16)
			if err != nil || port == 0 {
				return wrong(fmt.Sprintf("%q is not a port", one))
			}
			*list.to = append(*list.to, uint16(port))
		}
	}
	if len(d.InitPorts) != len(d.AllocPorts) {
		return wrong("the lists of ports differ in length")
	}
	return d, nil
}

// limitMax bounds MaxConnections and MaxRequests.
const limitMax = 1 << 20

// restTimeMax bounds RestTime, and thereby 16 times RestTime.
const restTimeMax = 24 * time.Hour

// Check returns an error that says what is wrong with c, or nil.
func (c *Config) Check() error {
	if len(c.Decodes) == 0 {
		return errors.New("there is no decode engine: give at least one")
	}
	for _, d := range c.Decodes {
		if d.URL == nil || d.Host == "" || len(d.InitPorts) == 0 || len(d.InitPorts) != len(d.AllocPorts) {
			return fmt.Errorf("decode %v: give the host of its agents, with two ports for each rank", d.URL)
		}
	}
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"bytes of a body", c.MaxBodyBytes},
		{"read timeout", int64(c.ReadTimeout)}, {"write timeout", int64(c.WriteTimeout)},
		{"prefill timeout", int64(c.PrefillTimeout)}, {"timeout", int64(c.Timeout)},
		{"silence", int64(c.SilenceTimeout)},
	} {
		if limit.value <= 0 {
			return fmt.Errorf("%s: %d; give more than 0", limit.name, limit.value)
		}
	}
	for _, limit := range []struct {
		name  string
		value int
	}{{"connections (--connections)", c.MaxConnections}, {"requests (--requests)", c.MaxRequests}} {
		if limit.value < 0 || limit.value > limitMax {
			return fmt.Errorf("%s: %d; give 1 to %d, or 0 for as many as the limit of open files allows", limit.name,
				limit.value, limitMax)
		}
	}
	if c.RestTime < 0 || c.RestTime > restTimeMax {
		return fmt.Errorf("rest: %v; give 0 to %v", c.RestTime, restTimeMax)
	}
	if c.MaxTotalBytes < c.MaxBodyBytes {
		return fmt.Errorf("bytes of all bodies: %d, less than the %d of a single body; give more", c.MaxTotalBytes, c.MaxBodyBytes)
	}
	return nil
}
