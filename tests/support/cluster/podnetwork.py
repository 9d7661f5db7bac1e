"""What pods on a node have of a network: CNI plugins that leave the network of the machine as it is.

The node shares the machine's. No pod has an interface but its own loopback.
"""

from __future__ import annotations

_VERSION = """VERSION) echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0"]}' ;;"""
_ANSWER = """cat <<-END
	{"cniVersion": "0.4.0", "interfaces": [{"name": "$CNI_IFNAME", "sandbox": "$CNI_NETNS"}],
	"ips": [{"version": "4", "interface": 0, "address": "$address/24"}]}
	END"""

# an address that leads nowhere: exec probes need no network
ALONE = f"""#!/bin/sh
case $CNI_COMMAND in
{_VERSION}
ADD)
	nsenter --net="$CNI_NETNS" ip link set lo up
	address=10.88.77.2
	{_ANSWER}
	;;
esac
"""


def reached(*, service: str, server: int, port: int) -> str:
    """Pods reach the API server, on `server` of the machine's loopback, at the address that a cluster gives
    it; and are reached from the node at one port.

    A pod's address is one of the machine's loopback. systemd relays connections, in place of routes.
    """
    activate, relay = "systemd-socket-activate --listen", "/lib/systemd/systemd-socket-proxyd"
    return f"""#!/bin/sh
unit() {{ echo "$1-$CNI_CONTAINERID"; }}
case $CNI_COMMAND in
{_VERSION}
ADD)
	inside="nsenter --net=$CNI_NETNS" outside='nsenter --net=/proc/1/ns/net'
	$inside ip link set lo up
	$inside ip address add {service}/32 dev lo
	number=$(printf %.4s "$CNI_CONTAINERID")
	address=127.88.$((0x${{number%??}})).$((0x${{number#??}}))
	systemd-run --quiet --collect --unit="$(unit out)" \
		$inside {activate} {service}:443 $outside {relay} 127.0.0.1:{server}
	systemd-run --quiet --collect --unit="$(unit in)" \
		{activate} "$address:{port}" $inside {relay} 127.0.0.1:{port}
	{_ANSWER}
	;;
DEL) systemctl stop "$(unit out)" "$(unit in)" ;;
esac
exit 0
"""
