// Package pki makes the certificates and keys of a test cluster: one
// authority that signs every server and client.
//
// Keys are ECDSA P-256, certificates valid for ten years: the cluster lives
// for hours, and a shorter term would only make old state folders unusable.
// It is no model for a real cluster, where front proxy, etcd and API have
// authorities of their own.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const validity = 10 * 365 * 24 * time.Hour

// Cert is one certificate to make; its files are Name.crt and Name.key.
type Cert struct {
	Name string
	// User and Groups are what Kubernetes takes from a client certificate:
	// common name and organizations.
	User   string
	Groups []string
	// DNS and IPs are a server's names.
	DNS []string
	IPs []string
}

const (
	// CA is the authority's file name without ending.
	CA = "ca"
	// ServiceAccount is the name of the key that signs service account
	// tokens; its public half is ServiceAccount.pub.
	ServiceAccount = "sa"
)

// Ensure makes what is missing in dir: the authority, the service account key,
// and the certificates. What is there is kept, so that clients of an earlier
// run stay valid.
func Ensure(dir string, certs []Cert) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make certificate folder: %w", err)
	}
	ca, caKey, err := authority(dir)
	if err != nil {
		return err
	}
	if err := serviceAccountKey(dir); err != nil {
		return err
	}
	for _, c := range certs {
		if exists(dir, c.Name+".crt") && exists(dir, c.Name+".key") {
			continue
		}
		if err := issue(dir, c, ca, caKey); err != nil {
			return fmt.Errorf("make certificate %s: %w", c.Name, err)
		}
	}
	return nil
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func authority(dir string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	cert, key, err := load(dir, CA)
	if err == nil {
		return cert, key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("load certificate authority: %w", err)
	}
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make authority key: %w", err)
	}
	t, err := template(pkix.Name{CommonName: "rollcall-test-cluster"})
	if err != nil {
		return nil, nil, err
	}
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	if err := save(dir, CA, t, t, key, key); err != nil {
		return nil, nil, fmt.Errorf("make certificate authority: %w", err)
	}
	return load(dir, CA)
}

func issue(dir string, c Cert, ca *x509.Certificate, caKey *ecdsa.PrivateKey) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	t, err := template(pkix.Name{CommonName: c.User, Organization: c.Groups})
	if err != nil {
		return err
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	t.DNSNames = c.DNS
	for _, s := range c.IPs {
		ip := net.ParseIP(s)
		if ip == nil {
			return fmt.Errorf("parse address %q", s)
		}
		t.IPAddresses = append(t.IPAddresses, ip)
	}
	return save(dir, c.Name, t, ca, key, caKey)
}

func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	// An hour back, for a clock that is set back a little between runs.
	from := time.Now().Add(-time.Hour)
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: from, NotAfter: from.Add(validity)}, nil
}

func save(dir, name string, t, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, signer)
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	if err := saveKey(dir, name, key); err != nil {
		return err
	}
	return savePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der)
}

func saveKey(dir, name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	return savePEM(filepath.Join(dir, name+".key"), "EC PRIVATE KEY", der)
}

func savePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func serviceAccountKey(dir string) error {
	if exists(dir, ServiceAccount+".key") && exists(dir, ServiceAccount+".pub") {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make service account key: %w", err)
	}
	if err := saveKey(dir, ServiceAccount, key); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("encode service account key: %w", err)
	}
	return savePEM(filepath.Join(dir, ServiceAccount+".pub"), "PUBLIC KEY", der)
}

func load(dir, name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certDER, err := loadPEM(filepath.Join(dir, name+".crt"))
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := loadPEM(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, nil, fmt.Errorf("parse certificate: %w", err)
	}
	key, err := x509.ParseECPrivateKey(keyDER)
	if err != nil {
		return nil, nil, fmt.Errorf("parse key: %w", err)
	}
	return cert, key, nil
}

func loadPEM(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("parse %s: no PEM block", path)
	}
	return block.Bytes, nil
}
