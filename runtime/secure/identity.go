package secure

import (
	"crypto/x509"
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
}

var plainPeer = Peer{Roles: effects.AllRoles}

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
		return name, nil
	case len(c.DNSNames) > 0:
		if name := c.DNSNames[0]; !strings.ContainsAny(name, "/*") {
			return strings.ToLower(name), nil
		}
		return "", fmt.Errorf("the certificate names %q, which is not the name of one peer; issue it for a whole DNS name", c.DNSNames[0])
	}
	return "", errors.New("the certificate has neither a URI nor a DNS name; issue it with a subject alternative name")
}
