package secure

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// A KeyPair is a certificate for clients that prove no identity, such as HTTP clients. Its files are read again when they
// change. All methods may be called from any goroutine.
type KeyPair struct {
	certFile, keyFile string
	log               *slog.Logger

	mu        sync.Mutex
	pair      *tls.Certificate
	checkedAt time.Time
	lastError string
}

// OpenKeyPair reads a certificate and its key. The names are those of the settings, for errors.
func OpenKeyPair(certName, certFile, keyName, keyFile string, log *slog.Logger) (*KeyPair, error) {
	k := &KeyPair{certFile: certFile, keyFile: keyFile, log: log, checkedAt: time.Now()}
	switch {
	case certFile == "":
		return nil, fmt.Errorf("%s names no file: a key alone proves nothing; give its certificate", certName)
	case keyFile == "":
		return nil, fmt.Errorf("%s names no file: a certificate alone proves nothing; give its key", keyName)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w; give a certificate and its key in PEM", certName, keyName, err)
	}
	k.pair = &pair
	return k, nil
}

// ServerConfig returns a configuration for servers, with the newest certificate for each connection.
func (k *KeyPair) ServerConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return k.newest(), nil
	}}
}

// newest returns the certificate, and reads the files again if that was not done for a while. If the files cannot be
// used, the former certificate stays in force, and the error is logged once.
func (k *KeyPair) newest() *tls.Certificate {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.checkedAt) < defaultRecheck {
		return k.pair
	}
	k.checkedAt = time.Now()
	pair, err := tls.LoadX509KeyPair(k.certFile, k.keyFile)
	switch {
	case err == nil:
		k.pair, k.lastError = &pair, ""
	case err.Error() != k.lastError:
		k.lastError = err.Error()
		k.log.Error("a certificate cannot be read again, and the former one stays in force", "file", k.certFile, "err", err,
			"former_certificate_ends", k.pair.Leaf.NotAfter)
	}
	return k.pair
}

// Reload makes the next connection read the files again.
func (k *KeyPair) Reload() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checkedAt = time.Time{}
}
