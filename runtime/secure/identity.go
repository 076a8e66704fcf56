package secure

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// A Peer is the authenticated end of a connection.
type Peer struct {
	// Name is the identity in the peer's certificate; empty if the connection is plain.
	Name string
	// Principal names the identity in machines; zero if the connection is plain.
	Principal effects.Principal
	// Roles are the roles that the policy gives to the identity. A plain connection has all roles, because without
	// identities every process is believed.
	Roles effects.Roles
	// Tenants are the tenants whose chunks the peer may touch; nil: all.
	Tenants *effects.Tenants
	// Realm is the trust domain that the peer proved.
	Realm effects.Realm
	// countBy says what the policy counts the peer by.
	countBy countBy
}

// Origin returns what shares and quotas of machines count the peer by, given the Origin of its address. A plain
// connection counts by its address. A peer that proved an identity counts by the identity and, unless the policy has
// `count: identity`, by the address as well: then a host has no share of another host, and an identity no share of
// another identity at the same host.
func (p *Peer) Origin(address effects.Origin) effects.Origin {
	if p.Principal == 0 {
		return address
	}
	if p.countBy == countIdentities {
		address = 0
	}
	b := binary.BigEndian.AppendUint64([]byte("kvferry origin"), uint64(p.Principal))
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(b, uint64(address)))
	return max(effects.Origin(binary.BigEndian.Uint64(sum[:])), 1)
}

// plainPeer returns the peer at the other end of a connection without TLS. With chunks: proven it may touch only the
// chunks of the default tenant, and is in no trust domain.
func (g *Guard) plainPeer() Peer {
	if g == nil || g.config.Mode == Off || !g.config.ProvenChunks {
		return Peer{Roles: effects.AllRoles}
	}
	return unprovenPeer
}

// unprovenPeer is a peer that proved no identity, with all roles.
var unprovenPeer = Peer{Roles: effects.AllRoles, Tenants: effects.NewTenants(0), Realm: effects.RealmUnproven}

// trustDomain returns the trust domain of an identity: of a URI the host, as SPIFFE defines it. All DNS names are in one
// domain, that of the authorities in security.ca.
func trustDomain(name string) string {
	_, rest, isURI := strings.Cut(name, "://")
	if !isURI {
		return ""
	}
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// realmOf returns the realm of an identity, as seen by the process with the identity own.
func realmOf(name, own string) effects.Realm { return realmOfDomain(trustDomain(name), own) }

// realmOfDomain returns the realm of a trust domain, as seen by the process with the identity own.
func realmOfDomain(domain, own string) effects.Realm {
	if domain == trustDomain(own) {
		return 0
	}
	sum := sha256.Sum256([]byte("kvferry realm " + domain))
	return max(effects.Realm(binary.BigEndian.Uint64(sum[:])), effects.RealmUnproven+1)
}

// The texts by which callers state the trust domains that have no name.
const (
	domainOfDNS      = "dns"      // the domain of all identities that are DNS names
	domainOfUnproven = "unproven" // peers that proved no identity
)

// ParseDomain returns the realm of a trust domain that a caller states: empty for this process's own domain, the
// beginning of the identities of a domain as far as the host, such as spiffe://fleet, "dns" for the domain of all
// identities that are DNS names, or "unproven" for the peers that proved no identity. If ours is not empty, the domain
// is refused, ours says what would be accepted, and remedy what to do.
func (g *Guard) ParseDomain(domain string) (realm effects.Realm, ours, remedy string) {
	if domain == "" {
		return 0, "", ""
	}
	x := g.credentials()
	if x == nil || g.config.Mode == Permissive && !g.config.ProvenChunks {
		return 0, "nothing, because this node counts every peer as of its own domain",
			"leave it out, or set security.mode: strict, or permissive with security.chunks: proven"
	}
	switch domain {
	case domainOfDNS:
		return realmOfDomain("", x.name), "", ""
	case domainOfUnproven:
		return effects.RealmUnproven, "", ""
	}
	scheme, host, isURI := strings.Cut(domain, "://")
	if !isURI || scheme == "" || host == "" || strings.ContainsAny(host, "/ ") {
		return 0, "a domain such as spiffe://fleet, or " + domainOfDNS + " or " + domainOfUnproven,
			"write the domain's identities as far as the host, without a path"
	}
	return realmOfDomain(host, x.name), "", ""
}

// IdentityOf returns the identity that a certificate names: its URI or, without a URI, its first DNS name. The common
// name is ignored, because authorities do not check it.
func IdentityOf(c *x509.Certificate) (string, error) {
	switch {
	case len(c.URIs) > 1:
		return "", fmt.Errorf("the certificate (serial %s) has %d URIs, and an identity is one; issue it with one URI", c.SerialNumber,
			len(c.URIs))
	case len(c.URIs) == 1:
		name := c.URIs[0].String()
		// Otherwise the name could have the segments of a DNS name.
		if !strings.Contains(name, "://") {
			return "", fmt.Errorf("the certificate names %q, which has no authority; use a URI such as spiffe://fleet/decode/7", name)
		}
		return lowerHost(name), nil
	case len(c.DNSNames) > 0:
		if name := c.DNSNames[0]; !strings.ContainsAny(name, "/*") {
			return lowerHost(name), nil
		}
		return "", fmt.Errorf("the certificate names %q, which is not the name of one peer; issue it for a whole DNS name", c.DNSNames[0])
	}
	return "", errors.New("the certificate has neither a URI nor a DNS name; issue it with a subject alternative name")
}

// namesMax is the number of identities of which the guard remembers the names.
const namesMax = 4096

// rememberName records which identity a principal stands for. The caller holds g.mu. If there are too many, only the
// identities of open connections are kept.
func (g *Guard) rememberName(p *Peer) {
	if p.Principal == 0 {
		return
	}
	if _, known := g.names[p.Principal]; !known && len(g.names) >= namesMax {
		clear(g.names)
		for c := range g.conns {
			if len(g.names) < namesMax {
				g.names[c.peer.Principal] = c.peer.Name
			}
		}
	}
	g.names[p.Principal] = p.Name
}

// IdentityName returns the identity that a principal stands for, or "" if no peer has proved it lately.
func (g *Guard) IdentityName(p effects.Principal) string {
	if g == nil || p == 0 {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.names[p]
}
