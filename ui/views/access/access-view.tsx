import type { ComponentType } from 'preact'
import { path } from '../../app/location.ts'
import type { ViewProps } from '../../app/view-props.ts'
import { Failure } from '../../components/states.tsx'
import { AuthMethodList } from './auth-methods/auth-methods.tsx'
import { AuthMethodView } from './auth-methods/auth-mount.tsx'
import { EntityList, GroupList } from './identity/identity-lists.tsx'
import { EntityView, GroupView } from './identity/identity-details.tsx'
import { LeaseBrowser } from './leases/leases.tsx'
import { segmentsOf } from '../../app/path-segments.ts'
import { TokenList } from './tokens/token-list.tsx'
import { TokenView } from './tokens/token-view.tsx'

export interface AreaProps {
  /** Segments of the path after the name of the area. */
  readonly below: readonly string[]
}

function Tokens({ below: [accessor] }: AreaProps) {
  return accessor === undefined ? <TokenList /> : <TokenView accessor={accessor} />
}

function Identity({ below: [kind, id] }: AreaProps) {
  if (kind === 'groups') return id === undefined ? <GroupList /> : <GroupView id={id} />
  return id === undefined ? <EntityList /> : <EntityView id={id} />
}

function Auth({ below: [mount, name] }: AreaProps) {
  return mount === undefined ? <AuthMethodList /> : <AuthMethodView mount={mount} name={name} />
}

const AREAS: Readonly<Record<string, ComponentType<AreaProps>>> = {
  tokens: Tokens,
  leases: ({ below }) => <LeaseBrowser prefix={below.join('/')} />,
  identity: Identity,
  auth: Auth,
}

/** Tokens, leases, identity and auth methods: `/access/AREA/…`. */
export default function AccessView(_props: ViewProps) {
  const [, area = 'tokens', ...below] = segmentsOf(path.value)
  const Area = Object.hasOwn(AREAS, area) ? AREAS[area] : undefined
  if (!Area) return <Failure error={new Error(`There is no view at ${path.value}.`)} hint="Open Access again." />
  return <Area below={below} />
}
