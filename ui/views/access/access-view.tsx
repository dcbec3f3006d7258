import type { ComponentType } from 'preact'
import { path } from '../../app/location.ts'
import type { ViewProps } from '../../app/view-props.ts'
import { Failure } from '../../components/states.tsx'
import { AuthMethodList } from './auth-methods.tsx'
import { AuthMethodView } from './auth-mount.tsx'
import { EntityList, GroupList } from './identity-lists.tsx'
import { EntityView, GroupView } from './identity-details.tsx'
import { LeaseBrowser } from './leases.tsx'
import { segmentsOf } from './segments.ts'
import { TokenList } from './token-list.tsx'
import { TokenView } from './token-view.tsx'

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
