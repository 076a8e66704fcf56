package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// HTTPServerConfig returns the TLS configuration of an HTTP server whose clients prove an identity, with the newest files
// for each connection. A client needs a valid certificate; AuthorizeHTTP says which requests its identity may make.
// Modes Permissive and Strict do not differ here. The Guard must not be nil, and its mode not Off.
func (g *Guard) HTTPServerConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		x := g.credentials()
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{x.pair}, NextProtos: []string{"h2", "http/1.1"},
			ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
			VerifyConnection: func(s tls.ConnectionState) error {
				_, err := x.verify(s.PeerCertificates, x509.ExtKeyUsageClientAuth, g.config.Now())
				if err != nil {
					g.stats.refused.Add(1)
				}
				return err
			}}, nil
	}}
}

// AuthorizeHTTP returns an error unless the client of a request has one of the given roles now: connections of HTTP last,
// and the policy or the certificate may have ended since the handshake.
func (g *Guard) AuthorizeHTTP(s *tls.ConnectionState, roles effects.Roles) error {
	if s == nil {
		return errors.New("the connection has no TLS")
	}
	peer, err := g.credentials().verify(s.PeerCertificates, x509.ExtKeyUsageClientAuth, g.config.Now())
	if err != nil {
		return err
	}
	if !peer.Roles.Has(roles) {
		return fmt.Errorf("the peer is %q with the roles %v; it must be one of %v", peer.Name, peer.Roles, roles)
	}
	return nil
}

// HTTPClientConfig returns the TLS configuration of an HTTP client that calls the servers of HTTPServerConfig. As for
// connections of control, the identity of the server is what counts, and not the name that was dialled: the policy must
// give it a role.
func (g *Guard) HTTPClientConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &g.credentials().pair, nil },
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := g.credentials().verify(s.PeerCertificates, x509.ExtKeyUsageServerAuth, g.config.Now())
			return err
		}}
}
