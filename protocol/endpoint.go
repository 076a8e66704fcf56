package protocol

import (
	"strconv"
	"strings"
)

// An Endpoint is the address on which a peer listens. Host and port are compared as a pair. LMCache joins them without
// a separator, and therefore takes 10.0.0.1 port 17300 and 10.0.0.11 port 7300 for the same peer.
type Endpoint struct {
	Host string // name or address, without brackets
	Port uint16
}

// An EndpointError says why a text is not an endpoint.
type EndpointError struct {
	Text   string
	Remedy string
}

func (e *EndpointError) Error() string {
	return "endpoint " + strconv.Quote(e.Text) + ": " + e.Remedy
}

// ParseEndpoint parses host:port or [v6]:port, as configuration and messages write endpoints: without a scheme. The
// error is an *EndpointError.
func ParseEndpoint(s string) (Endpoint, error) {
	if strings.Contains(s, "://") {
		return Endpoint{}, &EndpointError{s, "leave out the scheme, peers prepend tcp:// themselves"}
	}
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 {
		return Endpoint{}, &EndpointError{s, "write host:port"}
	}
	host := s[:colon]
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
		if !strings.Contains(host, ":") {
			return Endpoint{}, &EndpointError{s, "use brackets for IPv6 addresses only"}
		}
	} else if strings.Contains(host, ":") {
		return Endpoint{}, &EndpointError{s, "put an IPv6 address in brackets"}
	}
	if host == "" {
		return Endpoint{}, &EndpointError{s, "name a host"}
	}
	for _, c := range []byte(host) {
		if c <= ' ' || c == 0x7f || strings.IndexByte("[]/@", c) >= 0 {
			return Endpoint{}, &EndpointError{s, "name a host without spaces, brackets or paths"}
		}
	}
	port, err := strconv.ParseUint(s[colon+1:], 10, 16)
	if err != nil || port == 0 {
		return Endpoint{}, &EndpointError{s, "give a port from 1 to 65535"}
	}
	return Endpoint{host, uint16(port)}, nil
}

// Append appends the text that ParseEndpoint reads.
func (e Endpoint) Append(b []byte) []byte {
	if strings.IndexByte(e.Host, ':') >= 0 {
		b = append(b, '[')
		b = append(b, e.Host...)
		b = append(b, ']')
	} else {
		b = append(b, e.Host...)
	}
	return strconv.AppendUint(append(b, ':'), uint64(e.Port), 10)
}

// String returns the text that ParseEndpoint reads.
func (e Endpoint) String() string { return string(e.Append(nil)) }

// IsUnspecified reports whether the host stands for every interface of the listening process. No peer can be reached at
// such an address, but LMCache announces the address that it binds to.
func (e Endpoint) IsUnspecified() bool { return e.Host == "0.0.0.0" || e.Host == "::" || e.Host == "*" }

// Localhost is the only name that needs no name server: it always means the local machine (RFC 6761, 6.3).
const Localhost = "localhost"

// IsNumeric reports whether the host is an address, or Localhost, and not a name that must be resolved.
func (e Endpoint) IsNumeric() bool {
	if strings.IndexByte(e.Host, ':') >= 0 || e.Host == Localhost {
		return true // No name has a colon.
	}
	parts := strings.Split(e.Host, ".")
	for _, p := range parts {
		if n, err := strconv.ParseUint(p, 10, 8); err != nil || strconv.FormatUint(n, 10) != p {
			return false
		}
	}
	return len(parts) == 4
}

// JoinedID returns LMCache's id of a PD peer: host and port without a separator. The id is for the wire only: it is
// ambiguous, so nothing may be looked up by it.
func JoinedID(host string, port uint16) string {
	return host + strconv.FormatUint(uint64(port), 10)
}
