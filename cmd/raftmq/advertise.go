package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// port is one of the server's four ports.
type port struct {
	name      string // of its flags: name-address, name-advertise
	listen    *string
	advertise *string
	literal   bool // the advertised host must be an IP literal
}

func (c *Config) ports() []port {
	return []port{
		{"client", &c.ClientAddress, &c.ClientAdvertise, true},
		{"raft", &c.RaftAddress, &c.RaftAdvertise, false},
		{"gossip", &c.GossipAddress, &c.GossipAdvertise, true},
		{"http", &c.HTTPAddress, &c.HTTPAdvertise, false},
	}
}

// completeAdvertise derives the advertised address of each port that has none.
func (c *Config) completeAdvertise() error {
	for _, p := range c.ports() {
		if *p.advertise != "" {
			continue
		}
		host, portNumber, err := net.SplitHostPort(*p.listen)
		if err != nil {
			continue // Validate says what is wrong with it
		}
		if c.AdvertiseHost != "" {
			host = c.AdvertiseHost
		} else if host, err = reachableHost(host); err != nil {
			return fmt.Errorf("--%s-address %q: %w; name the address that others can reach with --advertise-host", p.name, *p.listen, err)
		}
		*p.advertise = net.JoinHostPort(host, portNumber)
	}
	return nil
}

// reachableHost is the IP address under which a listener on host is reached.
func reachableHost(host string) (string, error) {
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && ip.IsUnspecified():
		return interfaceAddress()
	case err == nil:
		return host, nil
	}
	addrs, err := net.LookupIP(host)
	if err != nil {
		return "", err
	}
	for _, a := range addrs {
		if a.To4() != nil {
			return a.String(), nil
		}
	}
	return addrs[0].String(), nil
}

// interfaceAddress is this machine's first global address, IPv4 before IPv6, and 127.0.0.1
// on a machine with loopback alone.
func interfaceAddress() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("list this machine's addresses: %w", err)
	}
	var v6 string
	for _, a := range addrs {
		ipNet, ok := a.(*net.IPNet)
		if !ok || !ipNet.IP.IsGlobalUnicast() {
			continue
		}
		if ipNet.IP.To4() != nil {
			return ipNet.IP.String(), nil
		}
		if v6 == "" {
			v6 = ipNet.IP.String()
		}
	}
	if v6 != "" {
		return v6, nil
	}
	return "127.0.0.1", nil
}

// checkAddress tests host:port with a port that others can be told.
func checkAddress(addr string) (host string, err error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return "", errors.New("allowed is host:port, an IPv6 host in brackets")
	}
	n, err := strconv.Atoi(portText)
	if err != nil || n < 1 || n > 65535 {
		return "", errors.New("allowed are port numbers 1 to 65535")
	}
	return host, nil
}

// checkReachable tests an advertised host.
func checkReachable(host string, literal bool) error {
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil && literal:
		return errors.New("allowed is an IP address, not a name: stock clients refuse names")
	case host == "":
		return errors.New("allowed is an address that others can reach")
	case err == nil && (ip.IsUnspecified() || ip.IsMulticast()):
		return errors.New("allowed is an address that others can reach, of one interface")
	case err == nil && ip.Zone() != "":
		return errors.New("allowed is an IP address without a zone")
	}
	return nil
}
