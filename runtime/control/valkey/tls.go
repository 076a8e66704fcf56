package valkey

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSConfig returns the TLS configuration for a server. The server must show a certificate for the host name that is
// signed by an authority in the PEM file ca (empty: by an authority that the system trusts). cert and key are the
// files of a client certificate for servers that require client certificates; both empty: none.
func TLSConfig(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("directory.log_ca: %w; give a file that can be read", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("directory.log_ca: %s has no certificate; give a file in PEM", ca)
		}
	}
	switch {
	case (cert == "") != (key == ""):
		return nil, errors.New("directory.log_cert and directory.log_key: one is missing; give both or neither")
	case cert != "":
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("directory.log_cert %s and directory.log_key %s: %w; give a certificate and its key in PEM",
				cert, key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
