// Package authority issues certificates for a fleet's processes: for the demo, for tests, and for trying security on
// one machine. A fleet in production has an authority of its own, such as cert-manager or SPIRE, whose files serve as
// well.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// backdate is subtracted from the beginning of each certificate, because the clocks of hosts differ.
const backdate = time.Minute

// An Authority issues certificates. Its key stays in memory.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	life time.Duration
	now  func() time.Time
}

// authorityLives is how many times longer the authority's own certificate is valid than those that it issues.
const authorityLives = 10

// New returns an authority. Certificates that it issues are valid for life.
func New(life time.Duration, now func() time.Time) (*Authority, error) {
	if life <= 0 {
		return nil, fmt.Errorf("certificates are to be valid for %v; give a positive time", life)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{key: key, life: life, now: now}
	template, err := a.template(pkix.Name{CommonName: "kvferry test authority"})
	if err != nil {
		return nil, err
	}
	template.NotAfter = template.NotBefore.Add(authorityLives * life)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

func (a *Authority) template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := a.now()
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: now.Add(-backdate), NotAfter: now.Add(a.life)}, nil
}

// CertPEM returns the authority's certificate.
func (a *Authority) CertPEM() []byte { return certPEM(a.cert.Raw) }

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Issue returns a certificate and its key for an identity: a URI, or a DNS name.
func (a *Authority) Issue(identity string) (cert, key []byte, err error) {
	template, err := a.template(pkix.Name{})
	if err != nil {
		return nil, nil, err
	}
	switch {
	case strings.Contains(identity, "://"):
		u, err := url.Parse(identity)
		if err != nil {
			return nil, nil, err
		}
		template.URIs = []*url.URL{u}
	case identity == "" || strings.ContainsAny(identity, "/* "):
		return nil, nil, fmt.Errorf("%q is neither a URI, such as spiffe://fleet/decode/7, nor a DNS name", identity)
	default:
		template.DNSNames = []string{identity}
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &leaf.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(leaf)
	if err != nil {
		return nil, nil, err
	}
	return certPEM(der), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// The names of the files in an identity's folder, as cert-manager and SPIRE's helper name them.
const (
	CertFile   = "tls.crt"
	KeyFile    = "tls.key"
	CAFile     = "ca.crt"
	PolicyFile = "policy.yaml"
)

// WriteFolder writes a new certificate of an identity into a folder, with its key, the authority's certificate and the
// policy. A file that exists is replaced at once (by a rename), so that a process that reads it sees one version.
func (a *Authority) WriteFolder(folder, identity string, policy []byte) error {
	cert, key, err := a.Issue(identity)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for name, data := range map[string][]byte{CertFile: cert, KeyFile: key, CAFile: a.CertPEM(), PolicyFile: policy} {
		err = errors.Join(err, replaceFile(filepath.Join(folder, name), data))
	}
	return err
}

func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // Only this user can read it.
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// FleetPolicy returns a policy for identities of the form spiffe://DOMAIN/ROLE/NAME, for each role.
func FleetPolicy(domain string) []byte {
	var b strings.Builder
	b.WriteString("# Each identity of the fleet has the role that its name states.\nidentities:\n")
	for role := range strings.SplitSeq(effects.RoleNames(), ", ") {
		fmt.Fprintf(&b, "  - name: spiffe://%s/%s/*\n    roles: [%s]\n", domain, role, role)
	}
	// A node with both roles has a role of its own in its name.
	fmt.Fprintf(&b, "  - name: spiffe://%s/both/*\n    roles: [prefill, decode]\n", domain)
	return []byte(b.String())
}
