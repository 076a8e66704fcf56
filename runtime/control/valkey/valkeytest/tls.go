package valkeytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// KeyFiles names the files of a certificate authority, and of a certificate for 127.0.0.1 that the authority signed,
// with the key.
type KeyFiles struct{ CA, Cert, Key string }

// NewKeyFiles makes a new authority with a certificate.
func NewKeyFiles(t testing.TB) KeyFiles {
	t.Helper()
	dir := t.TempDir()
	r := KeyFiles{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	caKey, errCA := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err = errors.Join(errCA, err); err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "one"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	caDER, err1 := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	leafDER, err2 := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	keyDER, err3 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2, err3, writePEM(r.CA, "CERTIFICATE", caDER), writePEM(r.Cert, "CERTIFICATE", leafDER),
		writePEM(r.Key, "PRIVATE KEY", keyDER)); err != nil {
		t.Fatal(err)
	}
	return r
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// StartEncrypted starts a server that speaks only TLS, with these files, and requires client certificates of the same
// authority. DoCommand, ReplicateFrom and BecomePrimary cannot reach the server.
func StartEncrypted(t testing.TB, r KeyFiles) *Server {
	t.Helper()
	return startServer(t, func(port uint16) []string {
		return []string{"--port", "0", "--tls-port", strconv.Itoa(int(port)), "--tls-cert-file", r.Cert, "--tls-key-file",
			r.Key, "--tls-ca-cert-file", r.CA}
	})
}
