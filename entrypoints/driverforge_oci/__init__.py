"""A registry client: references, transport, tokens, manifests, blobs (OCI distribution spec 1.1).

It imports core and the standard library only.

    logins = Logins(lambda: load_configuration(os.environ), ask)
    client = RegistryClient(Session(http_transport(os.environ), logins))
    match presence(client, Reference.parse("registry.site/driver:535.261.03-debian12")):
        case Present(digest): ...
        case Absent(): ...
        case Unknown(reason): ...       # never to be taken for absent
"""
