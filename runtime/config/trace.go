package config

import (
	"errors"
	"net/url"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// collectorKind returns a kind that reads the URL of a collector of spans.
func collectorKind(field func(*draft) *string) kind {
	return kind{takes: "http or https URL", read: func(d *draft, n *yaml.Node) (Code, string) {
		s, isScalar := scalarText(n)
		if !isScalar {
			return Type, "write one URL"
		}
		if remedy := CheckCollector(s); remedy != "" {
			return Range, remedy
		}
		*field(d) = s
		return codeOK, ""
	}}
}

// CheckCollector returns what is wrong with the URL of a collector of spans, or an empty text.
func CheckCollector(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "write a URL such as http://127.0.0.1:4318; credentials go to OTEL_EXPORTER_OTLP_HEADERS"
	}
	return ""
}

// ratioKind returns a kind that reads a share.
func ratioKind(field func(*draft) *float64) kind {
	return parsedKind("0 to 1", func(s string) (float64, error) {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0, errors.New("write a number from 0 to 1")
		}
		return v, nil
	}, func(v float64) string {
		if !(v >= 0 && v <= 1) {
			return "write a number from 0 to 1, such as 0.01 for one call of a hundred"
		}
		return ""
	}, func(d *draft, v float64) { *field(d) = v })
}
